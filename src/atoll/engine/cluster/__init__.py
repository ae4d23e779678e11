"""The parts of an engine whose sandboxes are Pods: what one machine has, the cluster has instead."""
