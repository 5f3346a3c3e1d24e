package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// admissionStep is one request of a test of admission, with a part of the body that answers it.
type admissionStep struct {
	method, path, body string
	code               int
	want               string
}

// runAdmissionSteps sends requests as the administrator.
func runAdmissionSteps(t *testing.T, s *Server, steps []admissionStep) {
	t.Helper()
	for _, step := range steps {
		r := httptest.NewRequest(step.method, step.path, strings.NewReader(step.body))
		r.Header.Set("Authorization", "Bearer admintoken")
		r.Header.Set("Content-Type", "application/json")
		if step.method == http.MethodPatch {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
		w := httptest.NewRecorder()
		s.http.server.Handler.ServeHTTP(w, r)
		if w.Code != step.code || !strings.Contains(w.Body.String(), step.want) {
			t.Errorf("%s %s %s: %d %s\nwant %d %s", step.method, step.path, step.body, w.Code, w.Body, step.code, step.want)
		}
	}
}

const (
	adminPods    = "/api/v1/namespaces/default/pods"
	adminLimits  = "/api/v1/namespaces/default/limitranges"
	adminClaims  = "/api/v1/namespaces/default/persistentvolumeclaims"
	adminClasses = "/apis/node.k8s.io/v1/runtimeclasses"
)

// podBody returns a pod with one container; more are further members of its spec, container of the container.
func podBody(name, container, more string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"automountServiceAccountToken":false,"containers":[` +
		`{"name":"c","image":"i:1"` + container + `}]` + more + `}}`
}

// TestPodAdmissionByDefault sends writes to which plug-ins that are on by default have something to say.
func TestPodAdmissionByDefault(t *testing.T) {
	s := start(t, testConfig(t))
	const (
		created, forbidden, fine = http.StatusCreated, http.StatusForbidden, http.StatusOK
		claim                    = `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],` +
			`"resources":{"requests":{"storage":"6Gi"}}}}`
	)
	runAdmissionSteps(t, s, []admissionStep{
		{"POST", adminLimits, `{"metadata":{"name":"l"},"spec":{"limits":[
			{"type":"Container","max":{"cpu":"1"},"default":{"cpu":"500m"}},
			{"type":"PersistentVolumeClaim","max":{"storage":"5Gi"}}]}}`, created, `"l"`},
		{"POST", adminPods, podBody("a", "", ""), created, `"limits":{"cpu":"500m"},"requests":{"cpu":"500m"}`},
		{"GET", adminPods + "/a", "", fine, `"kubernetes.io/limit-ranger":"LimitRanger plugin set: cpu request for container c; ` +
			`cpu limit for container c"`},
		{"PATCH", adminPods + "/a", `{"metadata":{"labels":{"a":"b"}}}`, fine, `"a":"b"`},
		{"POST", adminPods, podBody("b", `,"resources":{"limits":{"cpu":"2"}}`, ""), forbidden,
			`pods \"b\" is forbidden: maximum cpu usage per Container is 1, but limit is 2`},
		{"PATCH", adminPods + "/a/resize", `{"spec":{"containers":[{"name":"c","image":"i:1","resources":{` +
			`"limits":{"cpu":"2"},"requests":{"cpu":"2"}}}]}}`, forbidden,
			`pods \"a\" is forbidden: maximum cpu usage per Container is 1, but limit is 2`},
		{"POST", adminClaims, claim, forbidden,
			`persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi`},
		{"DELETE", adminLimits + "/l", "", fine, ""},
		{"POST", adminClaims, claim, created, ""},
		{"POST", adminPods, podBody("c", "", `,"runtimeClassName":"x"`), forbidden, `pod rejected: RuntimeClass \"x\" not found`},
		{"POST", adminPods, podBody("c", "", `,"overhead":{"cpu":"1"}`), forbidden, `pod rejected: Pod Overhead set without`},
		{"POST", adminClasses, `{"metadata":{"name":"x"},"handler":"h","overhead":{"podFixed":{"cpu":"3m"}},` +
			`"scheduling":{"nodeSelector":{"k":"v"}}}`, created, ""},
		{"POST", adminPods, podBody("c", "", `,"runtimeClassName":"x"`), created, `"overhead":{"cpu":"3m"}`},
		{"POST", "/api/v1/nodes", `{"metadata":{"name":"n","labels":{"topology.kubernetes.io/zone":"z"}}}`, created, ""},
		{"POST", adminPods + "/a/binding", `{"metadata":{"name":"a"},"target":{"kind":"Node","name":"n"}}`, created, ""},
		{"GET", adminPods + "/a", "", fine, `"topology.kubernetes.io/zone":"z"`},
		{"POST", adminPods, podBody("d", "", `,"nodeName":"n"`), created, `"topology.kubernetes.io/zone":"z"`},
	})
}

// TestPodAdmissionOnDemand does the same for plug-ins that are off by default.
func TestPodAdmissionOnDemand(t *testing.T) {
	c := testConfig(t)
	c.Admission.Enable = []string{
		"AlwaysPullImages", "ExtendedResourceToleration", "LimitPodHardAntiAffinityTopology",
	}
	s := start(t, c)
	const created, forbidden = http.StatusCreated, http.StatusForbidden
	runAdmissionSteps(t, s, []admissionStep{
		{"POST", adminPods, podBody("a", "", ""), created, `"imagePullPolicy":"Always"`},
		{"POST", adminPods, podBody("b", `,"resources":{"limits":{"a.io/x":"1"}}`, ""), created,
			`{"key":"a.io/x","operator":"Exists","effect":"NoSchedule"}`},
		{"POST", adminPods, podBody("c", "", `,"affinity":{"podAntiAffinity":{`+
			`"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone"}]}}`), forbidden, "has TopologyKey zone"},
	})
}
