package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const (
	adminPods    = "/api/v1/namespaces/default/pods"
	adminLimits  = "/api/v1/namespaces/default/limitranges"
	adminClaims  = "/api/v1/namespaces/default/persistentvolumeclaims"
	adminClasses = "/apis/node.k8s.io/v1/runtimeclasses"
)

// podBody returns a pod with one container. The JSON members in container are added to the container, and those in
// more to the spec.
func podBody(name, container, more string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"automountServiceAccountToken":false,"containers":[` +
		`{"name":"c","image":"i:1"` + container + `}]` + more + `}}`
}

// TestPodAdmissionByDefault sends writes that the plug-ins which are on by default change or refuse.
func TestPodAdmissionByDefault(t *testing.T) {
	s := start(t, testConfig(t))
	const (
		created, forbidden, fine = http.StatusCreated, http.StatusForbidden, http.StatusOK
		claim                    = `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],` +
			`"resources":{"requests":{"storage":"6Gi"}}}}`
	)
	admin(t, s).Run([]apitest.Step{
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

// TestPodAdmissionOnDemand works as TestPodAdmissionByDefault, for plug-ins that are off by default.
func TestPodAdmissionOnDemand(t *testing.T) {
	c := testConfig(t)
	c.Admission.Enable = []string{
		"AlwaysPullImages", "ExtendedResourceToleration", "LimitPodHardAntiAffinityTopology",
	}
	s := start(t, c)
	const created, forbidden = http.StatusCreated, http.StatusForbidden
	admin(t, s).Run([]apitest.Step{
		{"POST", adminPods, podBody("a", "", ""), created, `"imagePullPolicy":"Always"`},
		{"POST", adminPods, podBody("b", `,"resources":{"limits":{"a.io/x":"1"}}`, ""), created,
			`{"key":"a.io/x","operator":"Exists","effect":"NoSchedule"}`},
		{"POST", adminPods, podBody("c", "", `,"affinity":{"podAntiAffinity":{`+
			`"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone"}]}}`), forbidden, "has TopologyKey zone"},
	})
}

// TestPodAdmissionByConfigFile configures plug-ins in the file of --admission-control-config-file.
func TestPodAdmissionByConfigFile(t *testing.T) {
	c := testConfig(t)
	c.Admission.Enable = []string{"PodNodeSelector", "PodTolerationRestriction", "EventRateLimit"}
	c.Admission.ConfigFile = filepath.Join(t.TempDir(), "admission.yaml")
	const text = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodNodeSelector
  configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: pool=a, default: "pool=a,disk=ssd"}}
- name: PodTolerationRestriction
  configuration:
    apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
    kind: Configuration
    default: [{key: d, operator: Exists}]
    whitelist: [{key: d, operator: Exists}, {effect: NoExecute, operator: Exists}]
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: Namespace, qps: 1, burst: 1}]
`
	if err := os.WriteFile(c.Admission.ConfigFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, c)
	const (
		created, forbidden = http.StatusCreated, http.StatusForbidden
		events             = "/api/v1/namespaces/%s/events"
		event              = `{"metadata":{"name":%q},"involvedObject":{"kind":"Pod","name":"p","namespace":%q}}`
	)
	at := func(namespace string) string { return fmt.Sprintf(events, namespace) }
	of := func(name, namespace string) string { return fmt.Sprintf(event, name, namespace) }
	admin(t, s).Run([]apitest.Step{
		{"POST", adminPods, podBody("a", "", ""), created, `"nodeSelector":{"pool":"a"}`},
		{"GET", adminPods + "/a", "", http.StatusOK, `{"key":"d","operator":"Exists"}`},
		{"POST", adminPods, podBody("b", "", `,"nodeSelector":{"disk":"hdd"}`), forbidden,
			`pods \"b\" is forbidden: pod node label selector labels conflict with its namespace whitelist`},
		{"POST", adminPods, podBody("b", "", `,"tolerations":[{"key":"x","operator":"Exists"}]`), 500,
			`"message":"pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist",` +
				`"code":500`},
		{"POST", at("kube-public"), of("e", "kube-public"), created, ""},
		{"POST", at("kube-public"), of("f", "kube-public"), http.StatusTooManyRequests,
			`"message":"Too many requests: limit reached on type Namespace for key kube-public","reason":"TooManyRequests"`},
		{"POST", at("kube-node-lease"), of("f", "kube-node-lease"), created, ""},
	})
}

// requiredPluginConfigs writes configurations for the plug-ins that do not start without one, and returns the
// file.
func requiredPluginConfigs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kubeconfig": "current-context: c\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n" +
			"contexts: [{name: c, context: {cluster: c}}]\n",
		"admission.yaml": "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n" +
			"- {name: EventRateLimit, path: events.yaml}\n- {name: ImagePolicyWebhook, path: images.yaml}\n",
		"events.yaml": "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n" +
			"limits: [{type: Server, qps: 1, burst: 1}]\n",
		"images.yaml": "imagePolicy: {kubeConfigFile: '" + filepath.Join(dir, "kubeconfig") + "'}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "admission.yaml")
}

// TestImagePolicyFailsClosed: without defaultAllow no pod is created while the webhook cannot be reached.
func TestImagePolicyFailsClosed(t *testing.T) {
	c := testConfig(t)
	c.Admission.Enable = []string{"ImagePolicyWebhook"}
	c.Admission.ConfigFile = requiredPluginConfigs(t)
	admin(t, start(t, c)).Run([]apitest.Step{
		{"POST", adminPods, podBody("a", "", ""), http.StatusForbidden,
			`pods \"a\" is forbidden: Post \"https://127.0.0.1:1/?timeout=30s\": dial tcp 127.0.0.1:1: connect: connection refused`},
	})
}

// TestPodPluginsIgnoreOtherWrites checks that the plug-ins for pods allocate nothing for a write of another kind.
func TestPodPluginsIgnoreOtherWrites(t *testing.T) {
	s := start(t, testConfig(t))
	conf := config.Default().Admission
	conf.Only = []string{
		"LimitPodHardAntiAffinityTopology", "LimitRanger", "AlwaysPullImages", "ImagePolicyWebhook", "PodNodeSelector",
		"PodTolerationRestriction", "EventRateLimit", "ExtendedResourceToleration", "RuntimeClass", "PodTopologyLabels",
	}
	conf.ConfigFile = requiredPluginConfigs(t)
	o := &plugin.Options{Config: &conf, Registry: s.api.registry, Log: slog.Default()}
	all := plugin.List()
	obj := &corev1.ConfigMap{}
	for i := range all {
		if !slices.Contains(conf.Only, all[i].Name) {
			continue
		}
		configs, err := plugin.ReadConfig(conf.ConfigFile, os.ReadFile, all)
		if err != nil {
			t.Fatal(err)
		}
		p, err := all[i].Make(&plugin.Input{Options: o, Own: configs[all[i].Name], Read: os.ReadFile})
		if err != nil {
			t.Fatal(err)
		}
		a := &admission.Attributes{
			Operation: admission.Update, Resource: corev1.Resource("configmaps"), Namespace: "default", Name: "c", Object: obj, Old: obj,
		}
		write := func() {
			for _, f := range []func(context.Context, *admission.Attributes) error{p.Mutate, p.Validate} {
				if f == nil {
					continue
				}
				if err := f(t.Context(), a); err != nil {
					t.Error(err)
				}
			}
		}
		// Other goroutines of the process allocate too, and may do so for seconds after the start of a server. One
		// measurement without them is enough.
		wait.Seen(t, p.Name+" to allocate nothing for a ConfigMap", func() (bool, string) {
			n := testing.AllocsPerRun(10, write)
			return n == 0, fmt.Sprint(n, " allocations")
		})
	}
}
