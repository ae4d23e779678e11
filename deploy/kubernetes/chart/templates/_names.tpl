{{- define "atoll.labels" -}}
app.kubernetes.io/name: atoll
app.kubernetes.io/component: engine
{{- end }}

{{- define "atoll.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Settings as variables: lists, tables and numbers are JSON there. */}}
{{- define "atoll.settings" -}}
{{- $cluster := dict "namespace" .Release.Namespace "agent_image" (include "atoll.image" .) "pull_policy" .Values.image.pullPolicy "image_pull_secrets" .Values.imagePullSecrets "replicas" (gt (int .Values.replicas) 1) }}
{{- $own := dict "runtime" (dict "default" "kubernetes") "server" (dict "host" "0.0.0.0" "log_format" "json") "storage" (dict "state_dir" "/var/lib/atoll/engine" "reserve_mb" 100) "cluster" $cluster }}
{{- $all := mustMergeOverwrite $own (deepCopy .Values.settings) }}
{{- range $group, $settings := $all }}
{{- range $name, $value := $settings }}
- name: ATOLL_{{ upper $group }}_{{ upper $name }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end }}
{{- end }}
