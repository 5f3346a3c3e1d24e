package main

import (
	"io"
	"strings"
	"testing"
)

// TestFlagsEqualKubeAPIServers compares the names and defaults of the flags with those of kube-apiserver 1.37.
func TestFlagsEqualKubeAPIServers(t *testing.T) {
	const flags = `
audit-policy-file=
audit-log-path=
audit-log-maxage=366
audit-log-maxbackup=100
audit-log-maxsize=100
audit-log-compress=false
audit-log-format=json
audit-log-version=audit.k8s.io/v1
audit-log-mode=blocking
audit-log-batch-buffer-size=10000
audit-log-batch-max-size=1
audit-log-batch-max-wait=0s
audit-log-batch-throttle-enable=false
audit-log-batch-throttle-qps=0
audit-log-batch-throttle-burst=0
audit-log-truncate-enabled=false
audit-log-truncate-max-batch-size=10485760
audit-log-truncate-max-event-size=102400
audit-webhook-config-file=
audit-webhook-initial-backoff=10s
audit-webhook-batch-initial-backoff=10s
audit-webhook-version=audit.k8s.io/v1
audit-webhook-mode=batch
audit-webhook-batch-buffer-size=10000
audit-webhook-batch-max-size=400
audit-webhook-batch-max-wait=30s
audit-webhook-batch-throttle-enable=true
audit-webhook-batch-throttle-qps=10
audit-webhook-batch-throttle-burst=15
audit-webhook-truncate-enabled=false
audit-webhook-truncate-max-batch-size=10485760
audit-webhook-truncate-max-event-size=102400
cors-allowed-origins=[]
strict-transport-security-directives=[]
goaway-chance=0
shutdown-send-retry-after=false
advertise-address=
endpoint-reconciler-type=lease
kubernetes-service-node-port=0
`
	f := newServe(io.Discard, io.Discard, serveDefaults()).Flags()
	for line := range strings.Lines(strings.TrimSpace(flags)) {
		name, want, _ := strings.Cut(strings.TrimSpace(line), "=")
		if flag := f.Lookup(name); flag == nil {
			t.Errorf("--%s is missing", name)
		} else if flag.DefValue != want {
			t.Errorf("--%s: %q, want %q", name, flag.DefValue, want)
		}
	}
}
