package hostile

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// admissionAttacks are attacks by writes that admission has to refuse, and by what admission itself calls and evaluates.
func admissionAttacks() []row {
	containers := []right{{resources: "pods", verbs: "create,get"}, {resources: "pods/ephemeralcontainers", verbs: "*"}}
	const registration = "admissionregistration.k8s.io"
	return []row{
		{name: "a kubelet that changes its own Node", row: "16", server: "admission", run: kubeletChangesNode},
		{name: "a kubelet whose mirror pods use what they may not", row: "16", server: "admission", run: kubeletMirrorPods},
		{
			name: "secrets that may not be mounted", row: "18", server: "admission", rights: containers,
			setup: limitedAccount, run: unmountableSecrets,
		},
		{
			name: "images that may not run, in ephemeral containers", row: "18", server: "admission", rights: containers,
			setup: onePod, run: forbiddenImages,
		},
		{
			name: "a label that a webhook protects", row: "18",
			rights:        []right{{resources: "configmaps", verbs: "*"}},
			clusterRights: []right{{resources: "nodes", verbs: "get,update,patch"}},
			run:           protectedLabel,
		},
		{
			name: "policies and match conditions that cost too much", row: "24",
			rights: []right{{resources: "configmaps,secrets", verbs: "create"}},
			clusterRights: []right{{group: registration, verbs: "create,delete",
				resources: "validatingadmissionpolicies,validatingadmissionpolicybindings,validatingwebhookconfigurations"}},
			run: costlyPolicies, limits: limits{cpu: 10 * time.Second, peak: 192 << 20},
		},
		{
			name: "admission webhooks that hang", row: "28",
			rights: []right{{resources: "configmaps", verbs: "create"}}, run: hangingWebhooks,
			limits: limits{cpu: 4 * time.Second},
		},
	}
}

// forbiddenImage is the image that the webhook for images refuses.
const forbiddenImage = "forbidden"

// admitStrictly enables plug-ins of admission that are off by default, and serves the webhook of ImagePolicyWebhook.
func admitStrictly(dir string, c *config.Config) {
	c.Authorization.Modes = []string{"Node", "RBAC"}
	c.Admission.Enable = []string{"NodeRestriction", "ImagePolicyWebhook"}
	c.Admission.ConfigFile = filepath.Join(dir, "admission.yaml")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // the output of the test shows it
	}
	go func() {
		panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // of a test
			var review struct{ Spec json.RawMessage }
			allowed := json.NewDecoder(r.Body).Decode(&review) == nil && !strings.Contains(string(review.Spec), forbiddenImage)
			fmt.Fprintf(w, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"allowed":%t}}`, allowed)
		})))
	}()
	kubeconfig := filepath.Join(dir, "images.yaml")
	for path, text := range map[string]string{
		kubeconfig: "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
			"users: [{name: u}]\nclusters: [{name: c, cluster: {server: \"http://" + l.Addr().String() + "\"}}]\n",
		c.Admission.ConfigFile: "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n" +
			"- {name: ImagePolicyWebhook, configuration: {imagePolicy: {kubeConfigFile: '" + kubeconfig + "'}}}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
}

// kubelet returns the client of the kubelet of the node nodeName, which exists afterwards.
func (a *attack) kubelet() *client {
	a.Helper()
	body := encode(map[string]any{"metadata": map[string]any{"name": nodeName}})
	a.admin.send(http.MethodPost, "/api/v1/nodes", jsonType, body).want(a, http.StatusCreated, http.StatusConflict)
	c := newClient(a.T, a.server.url, nodeToken, false)
	a.atEnd(c.close)
	return c
}

// kubeletChangesNode has a kubelet change what others decide by: its taints, restricted labels, and the owners of its
// Node, whose removal would remove the Node (CVE-2025-5187).
func kubeletChangesNode(a *attack) {
	kubelet := a.kubelet()
	const path = "/api/v1/nodes/" + nodeName
	kubelet.send(http.MethodPatch, path, mergeType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)).want(a, http.StatusOK)
	const owner = `[{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"d9607e19-f88f-11e6-a518-42010a800195"}]`
	for _, body := range []string{
		`{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`,
		`{"spec":{"taints":null}}`,
		`{"spec":{"unschedulable":null,"taints":[]},"metadata":{"labels":{"node-restriction.kubernetes.io/a":"b"}}}`,
		`{"metadata":{"labels":{"node-restriction.kubernetes.io/a":"b"}}}`,
		`{"metadata":{"labels":{"x.node-restriction.kubernetes.io/a":"b"}}}`,
		`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`,
		`{"metadata":{"ownerReferences":` + owner + `}}`,
	} {
		kubelet.send(http.MethodPatch, path, mergeType, []byte(body)).want(a, http.StatusForbidden)
	}
	kubelet.send(
		http.MethodPatch, path+"/status", mergeType, []byte(`{"metadata":{"ownerReferences":`+owner+`}}`),
	).want(a, http.StatusForbidden)
	apply := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + nodeName + `","ownerReferences":` + owner + `}}`
	kubelet.send(
		http.MethodPatch, path+"?fieldManager=kubelet&force=true", applyType, []byte(apply),
	).want(a, http.StatusForbidden)
	for _, metadata := range []string{
		`{"name":"other"}`, `{"name":"` + nodeName + `","labels":{"node-restriction.kubernetes.io/a":"b"}}`,
	} {
		kubelet.send(
			http.MethodPost, "/api/v1/nodes", jsonType, []byte(`{"metadata":`+metadata+`}`),
		).want(a, http.StatusForbidden)
	}
}

// kubeletMirrorPods has a kubelet create pods by which it would get objects that it may not read. Claims of resources
// give access to devices (CVE-2025-4563).
func kubeletMirrorPods(a *attack) {
	kubelet := a.kubelet()
	mirror := func(name, spec string) *answer {
		return kubelet.send(http.MethodPost, a.path("pods"), jsonType, fmt.Appendf(nil, `{"metadata":{"name":%q,
			"annotations":{"kubernetes.io/config.mirror":"x"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":%q,
			"uid":%q,"controller":true}]},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"i"}]%s}}`,
			name, nodeName, a.uidOf("/api/v1/nodes/"+nodeName), nodeName, spec))
	}
	mirror("plain", "").want(a, http.StatusCreated)
	for name, spec := range map[string]string{
		"claim-of-resources": `,"resourceClaims":[{"name":"c","resourceClaimName":"claim"}]`,
		"secret":             `,"volumes":[{"name":"v","secret":{"secretName":"s"}}]`,
		"configmap":          `,"volumes":[{"name":"v","configMap":{"name":"s"}}]`,
		"claim-of-a-volume":  `,"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"s"}}]`,
		"token":              `,"volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}]`,
		"account":            `,"serviceAccountName":"default"`,
	} {
		mirror(name, spec).want(a, http.StatusForbidden)
	}
	kubelet.send(http.MethodPost, a.path("pods"), jsonType, encode(pod("no-mirror", nil))).want(a, http.StatusForbidden)
}

// uidOf returns the UID of an object.
func (a *attack) uidOf(path string) string {
	a.Helper()
	var object struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(a.admin.get(path).want(a, http.StatusOK).body, &object); err != nil {
		a.Fatal(err)
	}
	return object.Metadata.UID
}

// limitedAccount creates a service account whose pods may use the Secret "good" only, and a pod of it.
func limitedAccount(a *attack) {
	account := map[string]any{
		"metadata": map[string]any{
			"name": "limited", "annotations": map[string]any{"kubernetes.io/enforce-mountable-secrets": "true"},
		},
		"secrets": []any{map[string]any{"name": "good"}},
	}
	a.create(a.path("serviceaccounts"), account)
	p := pod("p", nil)
	p["spec"].(map[string]any)["serviceAccountName"] = "limited"
	a.create(a.path("pods"), p)
}

// unmountableSecrets uses another Secret in every place of a pod, also in ephemeral containers (CVE-2023-2728) and by
// envFrom (CVE-2024-3177).
func unmountableSecrets(a *attack) {
	from := func(name string) []string {
		return []string{
			`"env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"` + name + `","key":"k"}}}]`,
			`"envFrom":[{"secretRef":{"name":"` + name + `"}}]`,
		}
	}
	send := func(i int, spec string) *answer {
		return a.user.send(http.MethodPost, a.path("pods"), jsonType, fmt.Appendf(nil,
			`{"metadata":{"name":"x%d"},"spec":{"serviceAccountName":"limited",%s}}`, i, spec))
	}
	for i, secret := range from("bad") {
		container := `{"name":"c","image":"i",` + secret + `}`
		send(i, `"containers":[`+container+`]`).want(a, http.StatusForbidden)
		send(i, `"containers":[{"name":"d","image":"i"}],"initContainers":[`+container+`]`).want(a, http.StatusForbidden)
		for _, patchType := range []string{mergeType, strategicType} {
			a.user.send(
				http.MethodPatch, a.path("pods/p/ephemeralcontainers"), patchType,
				[]byte(`{"spec":{"ephemeralContainers":[`+strings.Replace(container, `"c"`, `"e"`, 1)+`]}}`),
			).want(a, http.StatusInternalServerError) // as kube-apiserver's
		}
	}
	const volumes = `"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v",`
	send(3, volumes+`"secret":{"secretName":"bad"}}]`).want(a, http.StatusForbidden)
	send(4, `"containers":[{"name":"c","image":"i"}],"imagePullSecrets":[{"name":"bad"}]`).want(a, http.StatusForbidden)
	for i, secret := range from("good") {
		send(5+i, `"containers":[{"name":"c","image":"i",`+secret+`}]`).want(a, http.StatusCreated)
	}
}

// forbiddenImages uses an image that ImagePolicyWebhook refuses, also in ephemeral containers (CVE-2023-2727).
func forbiddenImages(a *attack) {
	body := encode(pod("q", nil))
	body = []byte(strings.Replace(string(body), `"image":"i"`, `"image":"`+forbiddenImage+`"`, 1))
	a.user.send(http.MethodPost, a.path("pods"), jsonType, body).want(a, http.StatusForbidden)
	for image, want := range map[string]int{forbiddenImage: http.StatusForbidden, "fine": http.StatusOK} {
		for _, patchType := range []string{mergeType, strategicType} {
			a.user.send(http.MethodPatch, a.path("pods/p/ephemeralcontainers?dryRun=All"), patchType,
				[]byte(`{"spec":{"ephemeralContainers":[{"name":"e","image":"`+image+`"}]}}`)).want(a, want)
		}
	}
}

// webhook starts a webhook in the test and makes it judge resources of the attack's namespace, and Nodes with the label
// protected. fields are further members of the webhook as JSON, each with a comma before it.
func (a *attack) webhook(name, resources, fields string, handle http.HandlerFunc) {
	a.Helper()
	s := httptest.NewTLSServer(handle)
	a.atEnd(s.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	name = a.namespace + "-" + name
	a.admin.send(http.MethodPost, path, jsonType, fmt.Appendf(nil,
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},
		"webhooks":[{"name":"%s.example.com","clientConfig":{"url":%q,"caBundle":%q},"admissionReviewVersions":["v1"],
		"sideEffects":"None","rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":[%s]}],
		"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}%s}]}`,
		name, name, s.URL, ca, resources, a.namespace, fields)).want(a, http.StatusCreated)
	a.atEnd(func() { a.admin.send(http.MethodDelete, path+"/"+name, "", nil).want(a, http.StatusOK) })
}

// protectedLabel takes a label away that a webhook protects. The webhook decides by the object before the write, so it
// must see that as it is stored (CVE-2021-25735).
func protectedLabel(a *attack) {
	protect := func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		type labeled struct {
			Metadata struct{ Labels map[string]string }
		}
		var object, old labeled
		if json.NewDecoder(r.Body).Decode(&review) != nil || review.Request.OldObject.Raw != nil &&
			json.Unmarshal(review.Request.OldObject.Raw, &old) != nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		_ = json.Unmarshal(review.Request.Object.Raw, &object) // a deletion has none
		allowed := old.Metadata.Labels["protected"] != "yes" || object.Metadata.Labels["protected"] == "yes"
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed}
		_ = json.NewEncoder(w).Encode(&review) // the server may be gone
	}
	a.webhook("protect", `"configmaps","nodes"`, `,"objectSelector":{"matchLabels":{"protected":"yes"}}`, protect)
	metadata := func(name string) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{"protected": "yes"}}}
	}
	node := "protected-" + a.namespace
	a.create(a.path("configmaps"), metadata("c"))
	a.create("/api/v1/nodes", metadata(node))
	for path, kind := range map[string]string{a.path("configmaps/c"): "ConfigMap", "/api/v1/nodes/" + node: "Node"} {
		name := path[strings.LastIndex(path, "/")+1:]
		for _, labels := range []string{`{}`, `{"protected":"no"}`, `{"protected":""}`} {
			a.user.send(
				http.MethodPut, path, jsonType, []byte(`{"metadata":{"name":"`+name+`","labels":`+labels+`}}`),
			).want(a, http.StatusBadRequest)
		}
		a.user.send(
			http.MethodPatch, path, mergeType, []byte(`{"metadata":{"labels":null}}`),
		).want(a, http.StatusBadRequest)
		a.user.send(
			http.MethodPatch, path, jsonPatchType, []byte(`[{"op":"remove","path":"/metadata/labels/protected"}]`),
		).want(a, http.StatusBadRequest)
		a.user.send(
			http.MethodPatch, path, strategicType, []byte(`{"metadata":{"labels":{"$patch":"replace"}}}`),
		).want(a, http.StatusBadRequest)
		a.user.send(http.MethodPatch, path+"?fieldManager=m&force=true", applyType, []byte(
			`{"apiVersion":"v1","kind":"`+kind+`","metadata":{"name":"`+name+`","labels":{"protected":"no"}}}`,
		)).want(a, http.StatusBadRequest)
		if got := a.admin.get(path); !strings.Contains(string(got.body), `"protected":"yes"`) {
			a.Errorf("%s is not protected any more: %s", path, shorten(string(got.body)))
		}
	}
	a.user.send(http.MethodDelete, a.path("configmaps/c"), "", nil).want(a, http.StatusBadRequest)
	a.user.send(http.MethodDelete, a.path("configmaps"), "", nil).want(a, http.StatusBadRequest)
}

// costlyPolicies has policies and webhooks whose expressions cost more than they may. Kubernetes has no limit for these
// when they are written, so the write that they judge is refused, with the reason.
func costlyPolicies(a *attack) {
	const digits = "[0,1,2,3,4,5,6,7,8,9]"
	loops := "true" // ten million evaluations
	for i := range 7 {
		loops = fmt.Sprintf("%s.all(v%d, %s)", digits, i, loops)
	}
	long := "true" // a tenth of what all expressions of a policy may cost together
	for i := range 5 {
		long = fmt.Sprintf("%s.all(v%d, %s)", digits, i, long)
	}
	many := strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"expression":%q},`, long), 50), ",")
	for name, spec := range map[string]string{
		"loops":     fmt.Sprintf(`"validations":[{"expression":%q}]`, loops),
		"many":      `"validations":[` + many + `]`,
		"condition": fmt.Sprintf(`"validations":[{"expression":"true"}],"matchConditions":[{"name":"c","expression":%q}]`, loops),
		"variables": fmt.Sprintf(`"variables":[{"name":"v","expression":%q}],"validations":[{"expression":"variables.v"}]`, loops),
		"text": strings.ReplaceAll(
			`"validations":[{"expression":"size('a'.replace('a', 'A').replace('a', 'A').replace('a', 'A')) > 0"}]`,
			"A", strings.Repeat("a", 500)),
	} {
		name = a.namespace + "-" + name
		const group = "/apis/admissionregistration.k8s.io/v1/"
		a.user.send(http.MethodPost, group+"validatingadmissionpolicies", jsonType, fmt.Appendf(nil,
			`{"metadata":{"name":%q},"spec":{%s,"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],
			"operations":["*"],"resources":["configmaps"]}],
			"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}}}}`, name, spec, a.namespace),
		).want(a, http.StatusCreated)
		a.user.send(http.MethodPost, group+"validatingadmissionpolicybindings", jsonType, fmt.Appendf(nil,
			`{"metadata":{"name":%q},"spec":{"policyName":%q,"validationActions":["Deny"]}}`, name, name),
		).want(a, http.StatusCreated)
		got := a.user.send(http.MethodPost, a.path("configmaps"), jsonType, encode(configMap("c", 10)))
		got.want(a, http.StatusUnprocessableEntity)
		if text := string(got.body); !strings.Contains(text, "cost") && !strings.Contains(text, "larger than an object") {
			a.Errorf("%s: the answer does not say why: %s", name, shorten(text))
		}
		for _, resource := range []string{"validatingadmissionpolicybindings/", "validatingadmissionpolicies/"} {
			a.user.send(http.MethodDelete, group+resource+name, "", nil).want(a, http.StatusOK)
		}
	}
	a.webhook("costly", `"secrets"`, fmt.Sprintf(`,"matchConditions":[{"name":"c","expression":%q}]`, loops),
		func(http.ResponseWriter, *http.Request) { a.Error("the webhook was called") })
	got := a.user.send(http.MethodPost, a.path("secrets"), jsonType, []byte(`{"metadata":{"name":"s"}}`))
	if got.want(a, http.StatusForbidden); !strings.Contains(string(got.body), "cost") {
		a.Errorf("the answer does not say why: %s", shorten(string(got.body)))
	}
}

// hangingWebhooks writes what ten webhooks judge that never answer. The writes end with the time-out of the webhooks;
// while they wait, writes that no webhook judges go on.
func hangingWebhooks(a *attack) {
	const writes, hooks = 20, 10
	end := make(chan struct{})
	var waiting atomic.Int64
	hang := func(_ http.ResponseWriter, r *http.Request) {
		waiting.Add(1)
		defer waiting.Add(-1)
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}
	for i := range hooks {
		a.webhook(fmt.Sprint("hang", i), `"configmaps"`, `,"failurePolicy":"Ignore","timeoutSeconds":5`, hang)
	}
	a.atEnd(func() { close(end) })
	var wg sync.WaitGroup
	for i := range writes {
		wg.Go(func() {
			name := fmt.Sprint("c", i)
			a.user.send(http.MethodPost, a.path("configmaps"), jsonType, encode(configMap(name, 10))).want(a, http.StatusCreated)
		})
	}
	wait.NoError(a, "the webhooks to be called", func() error {
		if n := waiting.Load(); n < hooks {
			return fmt.Errorf("%d calls", n)
		}
		return nil
	})
	for i := range 20 {
		secret := fmt.Appendf(nil, `{"metadata":{"name":"s%d"}}`, i)
		a.admin.send(http.MethodPost, a.path("secrets"), jsonType, secret).want(a, http.StatusCreated)
	}
	if waiting.Load() == 0 {
		a.Error("the calls have ended before the other writes")
	}
	wg.Wait()
}
