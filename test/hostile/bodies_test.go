package hostile

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// bodyAttacks are attacks on the code that decodes and stores request bodies.
func bodyAttacks() []row {
	return []row{
		{
			name:   "body over the limit",
			row:    "19",
			rights: []right{{resources: "configmaps", verbs: "create,update,patch,delete"}},
			run: func(a *attack) {
				body := []byte(`{"metadata":{"name":"a"},"data":{"a":"` + strings.Repeat("x", 3<<20) + `"}}`)
				a.user.send(http.MethodPost, a.path("configmaps"), jsonType, body).want(a, http.StatusRequestEntityTooLarge)
				a.user.send(http.MethodPut, a.path("configmaps/a"), jsonType, body).want(a, http.StatusRequestEntityTooLarge)
				a.user.send(http.MethodPatch, a.path("configmaps/a"), mergeType, body).want(a, http.StatusRequestEntityTooLarge)
				a.user.send(http.MethodDelete, a.path("configmaps/a"), jsonType, body).want(a, http.StatusRequestEntityTooLarge)
			},
		},
		scaleAttack(), rawJSONAttack(), quantityAttack(), aliasAttack(), mergeDepthAttack(), yamlDepthAttack(),
		nameAttack(), mergeKeyAttack(), mirrorAttack(), schemaDepthAttack(), ruleAttack(),
	}
}

const deploymentBody = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},
	"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`

func scaleAttack() row {
	return row{
		name:   "apply of a Scale that holds a pod template",
		row:    "30",
		rights: []right{{group: "apps", resources: "deployments/scale", verbs: "patch"}},
		setup: func(a *attack) {
			a.admin.send(
				http.MethodPost, a.groupPath("apps/v1", "deployments"), jsonType, []byte(deploymentBody),
			).want(a, http.StatusCreated)
		},
		run: func(a *attack) {
			path := a.groupPath("apps/v1", "deployments/d")
			body := `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","labels":{"evil":"1"}%s},` +
				`"spec":{"replicas":2%s}}`
			apply := func(metadata, spec string) *answer {
				return a.user.send(
					http.MethodPatch, path+"/scale?force=true&fieldManager=m", applyType, fmt.Appendf(nil, body, metadata, spec),
				)
			}
			apply("", `,"template":{"spec":{"hostNetwork":true}}`).want(a, http.StatusInternalServerError)
			apply(`,"finalizers":["example.com/evil"],"annotations":{"evil":"1"}`, "").want(a, http.StatusOK)
			if after := string(a.admin.get(path).body); strings.Contains(after, "evil") ||
				strings.Contains(after, "hostNetwork") {
				a.Errorf("the Deployment took more than the replicas: %s", after)
			}
		},
	}
}

func envelope(apiVersion, kind string, message []byte) []byte {
	return wire.NewEnvelopeHead(apiVersion, kind).Append(nil, message)
}

func bytesField(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func rawJSONAttack() row {
	return row{
		name: "protobuf with raw JSON and text that are none",
		row:  "33",
		rights: []right{
			{group: "apps", resources: "controllerrevisions", verbs: "create,list"}, {resources: "configmaps", verbs: "create"},
		},
		run: func(a *attack) {
			named := bytesField(1, bytesField(1, []byte("r")))
			path := a.groupPath("apps/v1", "controllerrevisions")
			for _, data := range []string{"not json", "{", strings.Repeat("[", 5000)} {
				message := append(slices.Clone(named), bytesField(2, bytesField(1, []byte(data)))...)
				a.user.send(
					http.MethodPost, path, protoType, envelope("apps/v1", "ControllerRevision", message),
				).want(a, http.StatusBadRequest)
			}
			a.user.get(path).want(a, http.StatusOK)
			message := append(
				slices.Clone(named), bytesField(2, append(bytesField(1, []byte("k")), bytesField(2, []byte("\xff"))...))...,
			)
			a.user.send(
				http.MethodPost, a.path("configmaps"), protoType, envelope("v1", "ConfigMap", message),
			).want(a, http.StatusBadRequest)
		},
	}
}

func quantityAttack() row {
	return row{
		name:   "quantities that take long to read, hidden",
		row:    "34",
		rights: []right{{resources: "resourcequotas", verbs: "create,patch,get"}},
		setup: func(a *attack) {
			a.create(
				a.path("resourcequotas"),
				map[string]any{
					"metadata": map[string]any{"name": "q"}, "spec": map[string]any{"hard": map[string]any{"pods": "1"}},
				},
			)
		},
		run: func(a *attack) {
			const costly, escaped = "1e-999999999", `1e-99999\u00399999`
			const quota = `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{%s}}}`
			post := func(hard string) []byte { return fmt.Appendf(nil, quota, hard) }
			path := a.path("resourcequotas")
			a.user.send(http.MethodPost, path, jsonType, post(`"pods":"`+costly+`","pods":"1"`)).want(a, http.StatusBadRequest)
			a.user.send(
				http.MethodPost, path+"?fieldValidation=Ignore", jsonType, post(`"pods":"`+costly+`"},"hard":null,"scopes":{`),
			).want(a, http.StatusBadRequest)
			a.user.send(http.MethodPost, path, yamlType, post(`"pods":"`+escaped+`"`)).want(a, http.StatusBadRequest)
			apply := path + "/q?fieldManager=m&force=true"
			a.user.send(http.MethodPatch, apply, applyType, post(`"pods":"`+escaped+`"`)).want(a, http.StatusBadRequest)
			patch := fmt.Appendf(nil, `{"spec":{"hard":{"pods":"%s"}}}`, escaped)
			a.user.send(http.MethodPatch, path+"/q", strategicType, patch).want(a, http.StatusUnprocessableEntity)
			a.user.send(http.MethodPatch, path+"/q", mergeType, patch).want(a, http.StatusUnprocessableEntity)
		},
	}
}

func aliasAttack() row {
	return row{
		name:   "YAML whose aliases repeat a long text",
		row:    "21",
		rights: []right{{resources: "configmaps", verbs: "create,patch"}},
		run: func(a *attack) {
			doc := "a: &a " + strings.Repeat("x", 100<<10) + "\nb: [" + strings.TrimSuffix(
				strings.Repeat("*a,", 20000), ",",
			) + "]\n"
			a.user.send(http.MethodPost, a.path("configmaps"), yamlType, []byte(doc)).want(a, http.StatusBadRequest)
			a.user.send(
				http.MethodPatch, a.path("configmaps/a?fieldManager=m"), applyType, []byte(doc),
			).want(a, http.StatusBadRequest)
		},
	}
}

func mergeDepthAttack() row {
	return row{
		name:   "merge patches that are deep",
		row:    "34",
		rights: []right{{resources: "configmaps", verbs: "patch"}},
		setup: func(a *attack) {
			a.create(
				a.path("configmaps"),
				map[string]any{"metadata": map[string]any{"name": "c"}, "data": map[string]any{"a": strings.Repeat("x", 500<<10)}},
			)
		},
		run: func(a *attack) {
			for depth, status := range map[int]int{900: http.StatusUnprocessableEntity, 9000: http.StatusBadRequest} {
				body := strings.Repeat(`{"data":`, depth) + `"x"` + strings.Repeat("}", depth)
				a.user.send(http.MethodPatch, a.path("configmaps/c"), mergeType, []byte(body)).want(a, status)
			}
		},
	}
}

const widgetDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"deeps.hostile.example.com"},
	"spec":{"group":"hostile.example.com","scope":"Namespaced","names":{"plural":"deeps","singular":"deep","kind":"Deep",
		"listKind":"DeepList"},
	"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

func yamlDepthAttack() row {
	return row{
		name:   "deep custom resources as YAML",
		row:    "34",
		rights: []right{{group: "hostile.example.com", resources: "deeps", verbs: "create,list"}},
		setup: func(a *attack) {
			a.admin.send(
				http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonType, []byte(widgetDefinition),
			).want(a, http.StatusCreated)
			path := a.groupPath("hostile.example.com/v1", "deeps")
			wait.Until(a, "the resource of the definition to be served", func() bool { return a.admin.get(path).status == http.StatusOK })
		},
		run: func(a *attack) {
			path := a.groupPath("hostile.example.com/v1", "deeps")
			object := func(name string, depth, chains int) []byte {
				chain := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
				return []byte(`{"apiVersion":"hostile.example.com/v1","kind":"Deep","metadata":{"name":"` + name + `"},"l":[` +
					strings.TrimSuffix(strings.Repeat(chain+",", chains), ",") + `]}`)
			}
			a.user.send(http.MethodPost, path, jsonType, object("refused", 9000, 1)).want(a, http.StatusBadRequest)
			for i := range 5 {
				a.user.send(http.MethodPost, path, jsonType, object(fmt.Sprintf("d%d", i), 900, 20)).want(a, http.StatusCreated)
			}
			a.user.get(path, "Accept", yamlType).want(a, http.StatusOK)
		},
	}
}

func nameAttack() row {
	return row{
		name:   "names that are no part of a path",
		row:    "12",
		rights: []right{{group: "policy", resources: "poddisruptionbudgets", verbs: "create,get"}},
		run: func(a *attack) {
			path := a.groupPath("policy/v1", "poddisruptionbudgets")
			for _, name := range []string{"..", ".", "a/b", "a%b"} {
				body := fmt.Appendf(nil, `{"metadata":{"name":"%s"},"spec":{"minAvailable":1}}`, name)
				a.user.send(http.MethodPost, path, jsonType, body).want(a, http.StatusUnprocessableEntity)
			}
			a.user.get(path+"/%2e%2e").want(a, http.StatusBadRequest)
		},
	}
}

func mergeKeyAttack() row {
	return row{
		name:   "strategic merge patch with a list as merge key",
		row:    "20",
		rights: []right{{group: "apps", resources: "deployments", verbs: "patch"}},
		setup: func(a *attack) {
			a.admin.send(
				http.MethodPost, a.groupPath("apps/v1", "deployments"), jsonType, []byte(deploymentBody),
			).want(a, http.StatusCreated)
		},
		run: func(a *attack) {
			for _, key := range []string{`["c"]`, `{"c":"c"}`} {
				body := `{"spec":{"template":{"spec":{"containers":[{"name":` + key + `}]}}}}`
				a.user.send(
					http.MethodPatch, a.groupPath("apps/v1", "deployments/d"), strategicType, []byte(body),
				).want(a, http.StatusUnprocessableEntity)
			}
		},
	}
}

func mirrorAttack() row {
	return row{
		name:   "a pod that becomes a mirror pod",
		row:    "16",
		rights: []right{{resources: "pods,pods/status", verbs: "create,patch"}},
		setup: func(a *attack) {
			a.create(a.path("pods"), map[string]any{"metadata": map[string]any{"name": "p"},
				"spec": map[string]any{"nodeName": "n", "automountServiceAccountToken": false,
					"containers": []any{map[string]any{"name": "c", "image": "i"}}}})
		},
		run: func(a *attack) {
			body := []byte(`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}}}`)
			a.user.send(http.MethodPatch, a.path("pods/p"), mergeType, body).want(a, http.StatusUnprocessableEntity)
			a.user.send(http.MethodPatch, a.path("pods/p/status"), mergeType, body).want(a, http.StatusUnprocessableEntity)
		},
	}
}

func schemaDepthAttack() row {
	return row{
		name:          "protobuf definition with schemas in one another",
		row:           "33",
		clusterRights: []right{{group: "apiextensions.k8s.io", resources: "customresourcedefinitions", verbs: "create,list"}},
		run: func(a *attack) {
			const not = 28
			for _, depth := range []int{2000, 300_000} {
				schema := nestedMessage(not, depth)
				message := bytesField(2, bytesField(7, bytesField(4, bytesField(1, schema))))
				body := envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", message)
				a.user.send(
					http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", protoType, body,
				).want(a, http.StatusBadRequest)
			}
			a.user.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").want(a, http.StatusOK)
		},
	}
}

// nestedMessage puts a message into a field of itself many times, from the inside.
func nestedMessage(number protowire.Number, times int) []byte {
	const longestHead = 8
	b := make([]byte, times*longestHead)
	at := len(b)
	for range times {
		head := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(len(b)-at))
		at -= len(head)
		copy(b[at:], head)
	}
	return b[at:]
}

func ruleAttack() row {
	return row{
		name:          "rules whose calls make much of little",
		row:           "24",
		rights:        []right{{group: "rules.example.com", resources: "grows", verbs: "create"}},
		clusterRights: []right{{group: "apiextensions.k8s.io", resources: "customresourcedefinitions", verbs: "create"}},
		run: func(a *attack) {
			definition := strings.NewReplacer("hostile.example.com", "rules.example.com", "deep", "grow", "Deep", "Grow",
				`"x-kubernetes-preserve-unknown-fields":true`, `"properties":{"s":{"type":"string","maxLength":2000}},"x-kubernetes-validations":[
				{"rule":"size(self.s.replace('a','`+strings.Repeat("a", 1100)+`').replace('a','`+strings.Repeat("a", 1100)+`')) > 0"},
				{"rule":"size('%.1000000000f'.format([1.0])) > 0"},{"rule":"quantity('1e-99999' + '9999') == quantity('1')"}]`).Replace(widgetDefinition)
			a.user.send(
				http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonType, []byte(definition),
			).want(a, http.StatusCreated)
			path := a.groupPath("rules.example.com/v1", "grows")
			wait.Until(a, "the resource of the definition to be served", func() bool { return a.admin.get(path).status == http.StatusOK })
			body := `{"apiVersion":"rules.example.com/v1","kind":"Grow","metadata":{"name":"g"},"s":"` + strings.Repeat("a",
				1000) + `"}`
			a.user.send(http.MethodPost, path, jsonType, []byte(body)).want(a, http.StatusUnprocessableEntity)
		},
	}
}
