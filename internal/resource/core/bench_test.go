package core

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	sigsjson "sigs.k8s.io/json"

	"github.com/keelson-dev/keelson/internal/machinery/features"
)

// ordinaryPod has two containers with probes, ports, variables, volumes and security contexts.
const ordinaryPod = `{
"metadata":{"name":"web-5d4f8c7b9-x2x4k","namespace":"shop","labels":{"app":"web","tier":"front"},"annotations":{"example.com/a":"b"}},
"spec":{
 "serviceAccountName":"web","restartPolicy":"Always","terminationGracePeriodSeconds":30,
 "securityContext":{"runAsNonRoot":true,"runAsUser":1000,"fsGroup":2000,"seccompProfile":{"type":"RuntimeDefault"}},
 "nodeSelector":{"kubernetes.io/os":"linux"},
 "tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],
 "volumes":[
  {"name":"config","configMap":{"name":"web","items":[{"key":"a","path":"a.yaml"}]}},
  {"name":"data","emptyDir":{"sizeLimit":"1Gi"}},
  {"name":"token","projected":{"sources":[{"serviceAccountToken":{"path":"token","expirationSeconds":3607}},
   {"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}]}},
  {"name":"claim","persistentVolumeClaim":{"claimName":"data"}}],
 "containers":[
  {"name":"web","image":"registry.example.com/shop/web:1.2.3","command":["/web"],"args":["--port=8080","--v=2"],
   "ports":[{"name":"http","containerPort":8080},{"name":"metrics","containerPort":9090}],
   "env":[{"name":"A","value":"b"},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},
    {"name":"PASSWORD","valueFrom":{"secretKeyRef":{"name":"db","key":"password"}}}],
   "envFrom":[{"configMapRef":{"name":"web"}}],
   "resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"500m","memory":"256Mi"}},
   "volumeMounts":[{"name":"config","mountPath":"/etc/web"},{"name":"data","mountPath":"/data"},{"name":"claim","mountPath":"/var"},
    {"name":"token","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","readOnly":true}],
   "livenessProbe":{"httpGet":{"path":"/healthz","port":"http"},"periodSeconds":10},
   "readinessProbe":{"httpGet":{"path":"/ready","port":8080}},
   "lifecycle":{"preStop":{"exec":{"command":["sleep","5"]}}},
   "securityContext":{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{"drop":["ALL"]}}},
  {"name":"proxy","image":"registry.example.com/proxy:2","ports":[{"name":"proxy","containerPort":15001}],
   "env":[{"name":"LEVEL","value":"info"}],
   "resources":{"requests":{"cpu":"50m","memory":"64Mi"},"limits":{"memory":"64Mi"}},
   "volumeMounts":[{"name":"data","mountPath":"/data"}],
   "startupProbe":{"tcpSocket":{"port":15001},"failureThreshold":30},
   "securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"],"add":["NET_BIND_SERVICE"]}}}]}}`

// defaultGates are the gates of a server without --feature-gates.
var defaultGates = NewPodGates(features.Gates{})

func newOrdinaryPod(t testing.TB) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts([]byte(ordinaryPod), p); err != nil {
		t.Fatal(err)
	}
	defaultPod(p, &defaultGates)
	preparePodCreate(context.Background(), p, &defaultGates)
	return p
}

// BenchmarkValidatePod validates a new pod as a create does, without its metadata.
func BenchmarkValidatePod(b *testing.B) {
	p := newOrdinaryPod(b)
	if errs := validatePod(p, podRules{}); len(errs) > 0 {
		b.Fatal(errs)
	}
	b.ReportAllocs()
	for b.Loop() {
		validatePod(p, podRules{})
	}
}

// TestValidPodAllocatesLittle counts the allocations of a validation that finds nothing.
func TestValidPodAllocatesLittle(t *testing.T) {
	p := newOrdinaryPod(t)
	if n := testing.AllocsPerRun(100, func() { validatePod(p, podRules{}) }); n > 16 {
		t.Errorf("%v allocations", n)
	}
}
