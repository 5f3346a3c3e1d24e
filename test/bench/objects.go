package main

import (
	"bytes"
	"fmt"
	"strings"
)

// groupSize is the number of pods with the same group label.
const groupSize = 100

// podMark is in every pod's name; it is used to count pods in any format.
const podMark = "bench-web-"

func podName(i int) string { return fmt.Sprintf("%s%06d", podMark, i) }

// podTemplate is a pod of about 2.5 KB, as a ReplicaSet controller would send it. It already has the values that
// admission would set, so that all servers store the same object.
const podTemplate = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME",` +
	`"labels":{"app.kubernetes.io/name":"web","app.kubernetes.io/instance":"web-production",` +
	`"app.kubernetes.io/version":"4.18.2","app.kubernetes.io/component":"frontend",` +
	`"app.kubernetes.io/managed-by":"bench","pod-template-hash":"6b7f9d8c55","bench/group":"GROUP"},` +
	`"annotations":{"prometheus.io/scrape":"true","prometheus.io/port":"9102","prometheus.io/path":"/metrics",` +
	`"checksum/config":"5f2d8a4be0c1d9b7a36e4f1c8d0b97a25e6f3c4d1a8b9e7f0c2d5a6b3e4f1d80"}},` +
	`"spec":{"serviceAccountName":"default","automountServiceAccountToken":false,"enableServiceLinks":false,` +
	`"terminationGracePeriodSeconds":30,"priority":0,"preemptionPolicy":"PreemptLowerPriority",` +
	`"nodeSelector":{"kubernetes.io/os":"linux","node-pool":"general"},"securityContext":{"runAsNonRoot":true,` +
	`"runAsUser":10001,"fsGroup":10001},` +
	`"containers":[{"name":"web","image":"registry.example.com/shop/web:4.18.2","imagePullPolicy":"IfNotPresent",` +
	`"args":["--listen=:8080","--log-level=info"],"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],` +
	`"env":[{"name":"LOG_LEVEL","value":"info"},{"name":"DATABASE_URL",` +
	`"value":"postgres://db.production.svc:5432/shop"},{"name":"CACHE_URL",` +
	`"value":"redis://cache.production.svc:6379"},{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1",` +
	`"fieldPath":"metadata.name"}}}],` +
	`"resources":{"limits":{"cpu":"500m","memory":"512Mi"},"requests":{"cpu":"100m","memory":"256Mi"}},` +
	`"readinessProbe":{"httpGet":{"path":"/readyz","port":"http","scheme":"HTTP"},"initialDelaySeconds":3,` +
	`"periodSeconds":5},"livenessProbe":{"httpGet":{"path":"/livez","port":"http","scheme":"HTTP"},"periodSeconds":10},` +
	`"volumeMounts":[{"name":"config","mountPath":"/etc/web","readOnly":true},{"name":"scratch","mountPath":"/tmp"}]},` +
	`{"name":"metrics","image":"registry.example.com/shop/exporter:1.4.0","ports":[{"name":"metrics",` +
	`"containerPort":9102,"protocol":"TCP"}],"env":[{"name":"TARGET","value":"http://127.0.0.1:8080"}],` +
	`"resources":{"limits":{"cpu":"50m","memory":"64Mi"},"requests":{"cpu":"10m","memory":"32Mi"}},` +
	`"securityContext":{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true}}],` +
	`"volumes":[{"name":"config","configMap":{"name":"web-config"}},{"name":"scratch","emptyDir":{"sizeLimit":"128Mi"}}],` +
	`"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute",` +
	`"tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute",` +
	`"tolerationSeconds":300}]}}`

func podBodies(n int) [][]byte {
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = podNumbered(i, n)
	}
	return bodies
}

func podNumbered(i, n int) []byte {
	s := strings.Replace(podTemplate, "NAME", podName(i), 1)
	return []byte(strings.Replace(s, "GROUP", podGroup(i, n), 1))
}

func podGroup(i, n int) string { return fmt.Sprintf("g%04d", i%max(1, n/groupSize)) }

// statusPatch is the patch that a kubelet sends after a container was restarted.
func statusPatch(restarts int) []byte {
	return fmt.Appendf(nil,
		`{"status":{"phase":"Running","hostIP":"10.1.2.3","podIP":"10.244.3.17","startTime":"2026-01-02T03:04:05Z",`+
			`"conditions":[{"type":"Ready","status":"True","lastProbeTime":null,`+
			`"lastTransitionTime":"2026-01-02T03:04:%02dZ"},{"type":"ContainersReady","status":"True","lastProbeTime":null,`+
			`"lastTransitionTime":"2026-01-02T03:04:%02dZ"}],`+
			`"containerStatuses":[{"name":"web","ready":true,"restartCount":%d,`+
			`"image":"registry.example.com/shop/web:4.18.2",`+
			`"imageID":"registry.example.com/shop/web@sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",`+
			`"containerID":"containerd://7f6e5d4c3b2a19087f6e5d4c3b2a19087f6e5d4c3b2a19087f6e5d4c3b2a1908","started":true,`+
			`"state":{"running":{"startedAt":"2026-01-02T03:04:%02dZ"}}}]}}`,
		restarts%60, restarts%60, restarts, restarts%60)
}

// configMap returns a ConfigMap with size bytes of data.
func configMap(name string, data int) []byte {
	return fmt.Appendf(
		nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"settings":"%s"}}`, name, filler(data),
	)
}

// changedMap returns a ConfigMap to apply; version changes one value.
func changedMap(name string, variant int) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"settings":"%s","variant":"%d"}}`,
		name, filler(smallData), variant)
}

// deployment returns a Deployment to apply; its image changes. It has no tabs, because kube-apiserver reads an apply
// body as YAML.
func deployment(name string, variant int) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"%[1]s","labels":{"app":"%[1]s"}},`+
			`"spec":{"replicas":0,"selector":{"matchLabels":{"app":"%[1]s"}},"template":{"metadata":{"labels":{"app":"%[1]s",`+
			`"tier":"web"}},"spec":{`+
			`"containers":[{"name":"web","image":"registry.example.com/shop/web:4.18.%[2]d","args":["--listen=:8080",`+
			`"--config=/etc/web/config.yaml"],`+
			`"ports":[{"name":"http","containerPort":8080},{"name":"metrics","containerPort":9090}],`+
			`"env":[{"name":"MODE","value":"production"},{"name":"POD_IP",`+
			`"valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}],`+
			`"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"memory":"256Mi"}},`+
			`"readinessProbe":{"httpGet":{"path":"/healthz","port":8080},"periodSeconds":5},`+
			`"volumeMounts":[{"name":"config","mountPath":"/etc/web","readOnly":true},{"name":"tmp","mountPath":"/tmp"}],`+
			`"securityContext":{"runAsNonRoot":true,"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}],`+
			`"volumes":[{"name":"config","configMap":{"name":"web"}},{"name":"tmp","emptyDir":{}}],`+
			`"terminationGracePeriodSeconds":30,"serviceAccountName":"web"}}}}`, name, variant)
}

// eventMap returns a ConfigMap whose watch event is about 0.9 KB as JSON, and the offset at which the time is written.
func eventMap(name string) (body []byte, at int) {
	const around = 480 // of the event, the metadata and managedFields
	body = fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"payload":"%s","sent":"%s%s"}}`,
		name, filler(900-around), mark, strings.Repeat("0", markDigits))
	return body, bytes.Index(body, []byte(mark))
}

// filler returns n bytes that look like text and need no escapes.
func filler(n int) string {
	const text = "the quick brown fox jumps over the lazy dog; "
	return strings.Repeat(text, n/len(text)+1)[:n]
}
