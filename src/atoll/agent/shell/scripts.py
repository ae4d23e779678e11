"""The code that a session's bash runs around the user's text: restore before, dump after.

It is one compound command, parsed as a whole before any of it runs: no alias, option or parser
state that the text leaves behind can change how the rest of it reads. It uses builtins only and
does not fork (a fork is 0.27 ms, and would fire the user's CHLD trap).

* `builtin eval TEXT || …`: the list keeps `set -e` from judging the last status of the text a second
  time, and called by way of `builtin`, eval does not switch -e and ERR off inside, as it otherwise
  does there. Should the text leave `set -n` behind, the status of the list is still the text's.
* Afterwards nothing may call a function of the user. POSIX mode finds special builtins (trap,
  set, export, unset) before functions, and an assignment, which nothing can shadow, turns it on.
  `export -f` then tells whether `builtin` is a function; `command` is the spare way. What
  `enable -n` has switched off is switched on again.
* A DEBUG trap fires before every command, also before the one that removes it, and `set -x` traces
  the command that turns it off. Both go to a descriptor that leads to nowhere. A redirection is
  not traced, so BASH_XTRACEFD, if the user set it, is moved away by one.
* Closing descriptors 1 and 2 around all that cannot fail, unlike redirecting them, so that even
  a message about our own lost descriptors is not seen.
* Our descriptors are close-on-exec and have high numbers, so that programs never see them and
  loops over 3…255 do not close them. bash gives close-on-exec to no descriptor it is handed, but
  to the copies it saves while a group is redirected, and what is copied from those keeps it.
* Variables have a name no text can know; they are gone before an EXIT trap runs.
"""

from typing import Final

from atoll.agent.shell.quoting import quote, quote_text

SCRIPT_FD: Final = 3
DUMP_FD: Final = 4
SINK_FD: Final = 5
TRACED_FD: Final = 6

_NAME: Final = b"__atoll"

_BOOT: Final = b"IFS= read -rd '' __atoll <&3;builtin eval \"$__atoll\""

_OPEN: Final = (
    b"unset -v __atoll BASH_EXECUTION_STRING;"
    b"{ exec 973>&10 974>&11;} 4>&- 5>&-;exec 3<&- 4>&- 5>&-;"
)

_FRESH: Final = b"{ declare -p;printf '\\0';shopt -p dotglob;umask;ulimit -Sa;ulimit -Ha;printf '\\0';} >&973 2>&974;"

_DUMP = rb"""
{ { __atoll="STATUS $SHELLOPTS $BASHOPTS ${POSIXLY_CORRECT=y}"
trap - DEBUG
set +ex
if export -f builtin; then
  if export -f command; then unset -f command; fi
  __atoll_by=command
else
  __atoll_by=builtin
fi
"$__atoll_by" enable BUILTINS || { __atoll_by=command; command enable BUILTINS; }
[[ $__atoll == *[\ :]posix[\ :]* ]] || unset -v POSIXLY_CORRECT
[[ 1 ]]
} {BASH_XTRACEFD}>&974 >&974 2>&974 || __atoll=STATUS
{ "$__atoll_by" printf '%s\0' "$__atoll" "$#" "$@" "${#DIRSTACK[@]}" "${DIRSTACK[@]}"
"$__atoll_by" declare -p
"$__atoll_by" declare -p BASH_ALIASES
"$__atoll_by" printf '\0'
"$__atoll_by" declare -F
"$__atoll_by" printf '\0'
"$__atoll_by" declare -f
"$__atoll_by" printf '\0'
"$__atoll_by" trap -p
"$__atoll_by" shopt -p dotglob
"$__atoll_by" umask
"$__atoll_by" ulimit -Sa
"$__atoll_by" ulimit -Ha
"$__atoll_by" printf '\0end\0'
} >&973 2>&974
{ if [[ $__atoll == *[\ :]errexit[\ :]* ]]; then "$__atoll_by" set -e; fi
if [[ $__atoll == *:xtrace[\ :]* ]]; then "$__atoll_by" set -x; fi
"$__atoll_by" eval "$__atoll_by unset -v __atoll __atoll_by BASH_XTRACEFD
$__atoll_by exit ${__atoll%% *}"
} >&974 2>&974
"${__atoll_by-builtin}" exit "${__atoll%% *}"
} >&- 2>&-
"""

_DUMP = _DUMP.replace(b"BUILTINS", b"declare eval exit printf set shopt trap ulimit umask unset")

_FAILED: Final = b" || { { __atoll=$?; } {BASH_XTRACEFD}>&974 >&974 2>&974 || __atoll=1; } >&- 2>&-"
_EVAL_DUMP: Final = _FAILED + _DUMP.replace(b"STATUS", b"${__atoll-0}")
_TRACED_DUMP: Final = _DUMP.replace(b"STATUS", b"$?")

_ALONE: Final = b"unset -v __atoll BASH_EXECUTION_STRING;exec 3<&-;builtin eval "


def opening(name: bytes, *, measured: bool) -> bytes:
    """Return what comes first; unless it was *measured*, the fresh shell prints itself."""
    return (_OPEN if measured else _OPEN + _FRESH).replace(_NAME, name)


def eval_script(text: bytes, restored: bytes, prefix: bytes, name: bytes) -> bytes:
    """Return what `boot` reads from `SCRIPT_FD`.

    Args:
        text: what the user wants to run.
        restored: `opening` and the commands that bring the state back, on one line.
        prefix: commands that run as one more line before the text, or nothing.
        name: what our variables' names start with.
    """
    quoted = quote_text(prefix + b"\n" + text if prefix else text)
    closing = _EVAL_DUMP.replace(_NAME, name)
    return b"{ " + restored + b"builtin eval " + quoted + closing + b"}\n\0"


def traced_scripts(
    text: bytes, restored: bytes, program: bytes, name: bytes
) -> tuple[bytes, bytes]:
    """Return what bash reads as BASH_ENV from `TRACED_FD`, and the argument of `-c`.

    The second is the text with the dump after it, so the first makes sure that the text is whole:
    a copy that is only parsed, in a subshell, must have no error. If it has, `boot` takes over.
    """
    check = b"(builtin eval " + quote_text(b"set -n\n" + text) + b") 2>&-"
    other = b"exec -a bash " + quote(program) + b" -c " + quote_text(boot(name))
    first = b"exec 6<&-;unset -v BASH_ENV;if ! " + check + b";then " + other + b";fi\n"
    return first + restored + b"\n", text + _TRACED_DUMP.replace(_NAME, name)


def alone_script(text: bytes, name: bytes) -> bytes:
    """Return what `boot` reads from `SCRIPT_FD` to run a text without a session."""
    return _ALONE.replace(_NAME, name) + quote_text(text) + b"\n\0"


def boot(name: bytes) -> bytes:
    """Return the argument of `bash -c` that runs the script on `SCRIPT_FD`.

    Run like this, messages read as those of `bash -c TEXT` do, the text may be of any length, and
    `ps` shows neither text nor state.
    """
    return _BOOT.replace(_NAME, name)
