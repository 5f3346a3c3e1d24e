package hostile

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// documentAttacks are attacks by the structure of bodies in JSON, YAML, protobuf, CBOR and patches.
func documentAttacks() []row {
	all := []right{{resources: "configmaps,pods", verbs: "create,update,patch,get,list,delete"}}
	return []row{
		{name: "deep JSON and YAML", row: "20", rights: all, run: deepBodies},
		{name: "YAML aliases of aliases", row: "21", rights: all, run: aliases},
		{name: "JSON patches that are long or grow", row: "22", rights: all, setup: oneConfigMap, run: jsonPatches},
		{name: "patches of great depth, of all types", row: "20", rights: all, setup: oneConfigMap, run: deepPatches},
		// The decoders themselves refuse these bodies; the row guards decoders that may be added.
		{name: "protobuf that is malformed", row: "23", rights: all, run: malformedProtobuf},
		{name: "CBOR that is malformed", row: "23", server: "cbor", rights: all, run: malformedCBOR},
		{name: "quantities of pods, in every encoding and patch", row: "34", rights: all, setup: onePod, run: quantities},
		{name: "directives of strategic patches of other types", row: "20", rights: all, setup: onePod, run: patchDirectives},
		{
			name: "CEL rules whose cost is too high", row: "24",
			clusterRights: []right{{group: "apiextensions.k8s.io", resources: "customresourcedefinitions", verbs: "create"}},
			run:           costlyRules,
		},
		{
			name: "rules of roles that are large products", row: "34",
			rights: []right{{group: "rbac.authorization.k8s.io", resources: "roles,rolebindings", verbs: "create"}},
			run:    productRules,
		},
		{
			name: "many owner references", row: "34", rights: all, run: manyOwners,
			limits: limits{peak: 256 << 20, kept: 32 << 20}, // the log of changes has the object, of 1.4 MB
		},
		{
			name: "managed fields of hostile shapes", slow: true, row: "34", rights: all, run: hostileManagedFields,
			limits: limits{cpu: 30 * time.Second, peak: 300 << 20, kept: 48 << 20}, // most of it are bodies of 1 to 2.5 MB
		},
		{
			name: "names that are paths, of several kinds", row: "12",
			rights: []right{
				{resources: "configmaps", verbs: "*"}, {group: "policy", resources: "poddisruptionbudgets", verbs: "*"},
			},
			run: pathNames,
		},
		{
			name: "cluster-scoped custom resource through a namespace", row: "13",
			rights: []right{{group: "*", resources: "*", verbs: "*"}},
			setup:  func(a *attack) { define(a, "Wide", `{"type":"object"}`) },
			run: func(a *attack) {
				a.user.get("/apis/hostile.example.com/v1/namespaces/"+a.namespace+"/wides").want(a, http.StatusNotFound)
				a.user.get("/apis/hostile.example.com/v1/namespaces/"+a.namespace+"/wides/x").want(a, http.StatusNotFound)
				a.user.get("/apis/hostile.example.com/v1/wides").want(a, http.StatusForbidden)
			},
		},
	}
}

// productRules asks for a role whose one rule has more permissions than can be looked at one by one. The user has none.
func productRules(a *attack) {
	for _, n := range []int{11, 60, 300} {
		rule := fmt.Sprintf(`{"apiGroups":%[1]s,"resources":%[1]s,"verbs":%[1]s,"resourceNames":%[1]s}`, distinctNames(n))
		body := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r"},"rules":[` + rule + `]}`
		answer := a.user.send(http.MethodPost, a.groupPath("rbac.authorization.k8s.io/v1", "roles"), jsonType, []byte(body)).
			want(a, http.StatusForbidden)
		if !bytes.Contains(answer.body, []byte("is attempting to grant RBAC permissions not currently held")) {
			a.Errorf("refused for another reason: %.300s", answer.body)
		}
	}
}

// manyOwners creates objects with many different owner references, and changes one.
func manyOwners(a *attack) {
	var refs []string
	for i := range 20_000 {
		refs = append(refs, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","name":"a","uid":"%d"}`, i))
	}
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[` + strings.Join(refs, ",") + `]}}`
	a.user.send(http.MethodPost, a.path("configmaps")+"?dryRun=All", jsonType, []byte(body)).
		want(a, http.StatusCreated)
	a.user.send(http.MethodPost, a.path("configmaps"), jsonType, []byte(body)).want(a, http.StatusCreated)
	a.user.send(http.MethodPatch, a.path("configmaps")+"/a", "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`)).want(a, http.StatusOK, http.StatusNotFound) // it may be collected by now
}

// hostileManagedFields creates and updates objects with managed fields that are deep, long, many or wrong. Whatever the server keeps of
// them, the object can be applied to afterwards, patched and deleted.
func hostileManagedFields(a *attack) {
	entry := func(fields string) string {
		return `[{"manager":"m","operation":"Update","apiVersion":"v1","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":` + fields + `}]`
	}
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	deep := func(n int, key string) string {
		return entry(strings.Repeat(`{`+key+`:`, n) + "{}" + strings.Repeat("}", n))
	}
	const ten = `{"manager":"m%d","operation":"Update","apiVersion":"v1","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1",` +
		`"fieldsV1":{"f:data":{"f:k":{}}}}`
	for name, fields := range map[string]string{
		"deep":            deep(200_000, `"f:a"`),
		"deep, allowed":   deep(9_000, `"f:a"`),
		"deep items":      deep(9_000, `"k:{\"a\":1}"`),
		"wide":            entry(`{"f:data":{` + list(60_000, `"f:%d":{}`) + `}}`),
		"wide items":      entry(`{"f:data":{` + list(20_000, `"k:{\"name\":\"%d\"}":{}`) + `}}`),
		"one long name":   entry(`{"f:` + strings.Repeat("a", 2<<20) + `":{}}`),
		"a value of a MB": entry(`{"v:\"` + strings.Repeat("a", 1<<20) + `\"":{}}`),
		"a deep value":    entry(`{"v:` + strings.Repeat("[", 100_000) + `":{}}`),
		"a large number":  entry(`{"v:1e999999999":{},"v:` + strings.Repeat("9", 500_000) + `":{}}`),
		"a large index":   entry(`{"i:` + strings.Repeat("9", 500_000) + `":{},"i:-1":{},"i:":{}}`),
		"keys of no kind": entry(`{"":{},":":{},"f":{},"x:a":{},"k:":{},"k:[]":{},"k:{}":{},"k:{\"a\":{\"b\":[]}}":{}}`),
		"twice the same":  entry(`{"f:data":{` + list(60_000, `"f:k":{}%.0s`) + `}}`),
		"no object":       entry(`[{"f:a":{}}]`),
		"many managers":   `[` + list(8_000, ten) + `]`,
		"the same again":  `[` + strings.Repeat(fmt.Sprintf(ten, 1)+",", 8_000) + fmt.Sprintf(ten, 1) + `]`,
		"a long manager":  `[{"manager":"` + strings.Repeat("m", 2<<20) + `","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]`,
		"a far time":      `[{"manager":"m","operation":"Apply","apiVersion":"v1","time":"9999999-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{}}]`,
		"other versions":  `[{"manager":"m","operation":"Apply","apiVersion":"a/b/c","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]`,
	} {
		path := a.path("configmaps")
		refused := []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}
		created := a.user.send(http.MethodPost, path, jsonType, []byte(`{"metadata":{"name":"m","managedFields":`+fields+`},"data":{"k":"v"}}`)).
			want(a, append(refused, http.StatusCreated)...)
		if created.status != http.StatusCreated {
			a.user.send(http.MethodPost, path, jsonType, []byte(`{"metadata":{"name":"m"},"data":{"k":"v"}}`)).want(a, http.StatusCreated)
		}
		path += "/m"
		a.user.send(http.MethodPut, path, jsonType, []byte(`{"metadata":{"name":"m","managedFields":`+fields+`},"data":{"k":"w"}}`)).
			want(a, append(refused, http.StatusOK)...)
		a.user.send(http.MethodPatch, path, mergeType, []byte(`{"metadata":{"managedFields":`+fields+`},"data":{"k":"x"}}`)).
			want(a, append(refused, http.StatusOK)...)
		a.user.send(http.MethodPatch, path+"?fieldManager=n&force=true", applyType,
			[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"k":"y"}}`)).want(a, http.StatusOK)
		a.user.send(http.MethodPatch, path, mergeType, []byte(`{"data":{"k":"z"}}`)).want(a, http.StatusOK)
		a.user.send(http.MethodDelete, path, "", nil).want(a, http.StatusOK)
		if a.Failed() {
			a.Logf("managed fields: %s", name)
			return
		}
	}
}

// distinctNames returns a JSON list of n names.
func distinctNames(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf(`"x%d"`, i)
	}
	return "[" + strings.Join(names, ",") + "]"
}

func oneConfigMap(a *attack) { a.create(a.path("configmaps"), configMap("a", 10)) }

func onePod(a *attack) { a.create(a.path("pods"), pod("p", nil)) }

func pod(name string, annotations map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "annotations": annotations},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
	}
}

// define creates a definition of a cluster-scoped kind; spec is the schema.
func define(a *attack, kind, schema string) {
	a.Helper()
	plural := strings.ToLower(kind) + "s"
	body := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",`+
		`"metadata":{"name":"%[2]s.hostile.example.com"},`+
		`"spec":{"group":"hostile.example.com","scope":"Cluster","names":{"plural":%[2]q,"kind":%[1]q},`+
		`"versions":[{"name":"v1","served":true,"storage":true,`+
		`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%[3]s}}}}]}}`, kind, plural, schema)
	a.admin.send(
		http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonType, []byte(body),
	).want(a, http.StatusCreated)
	wait.NoError(a, plural+" to be served", func() error {
		if got := a.admin.get("/apis/hostile.example.com/v1/" + plural); got.status != http.StatusOK {
			return fmt.Errorf("%d", got.status)
		}
		return nil
	})
}

// refused are the statuses for a body that is refused.
func refused() []int {
	return []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}
}

// deepBodies sends bodies of almost 3 MiB of nested arrays or objects, complete and incomplete, in the place of an
// unknown field and of a field of any type.
func deepBodies(a *attack) {
	const size = 3<<20 - 1000
	for _, s := range []struct{ open, close string }{{"[", "]"}, {`{"a":`, "}"}, {"[", ""}, {`{"a":`, ""}} {
		depth := size / len(s.open+s.close)
		deep := strings.Repeat(s.open, depth)
		if s.close != "" {
			deep += "1" + strings.Repeat(s.close, depth)
		}
		body := []byte(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"x":` + deep[:min(len(deep), size)] + "}",
		)
		for _, contentType := range []string{jsonType, yamlType} {
			a.user.send(http.MethodPost, a.path("configmaps"), contentType, body).want(a, refused()...)
			a.user.send(http.MethodPost, a.path("configmaps"), contentType, []byte(deep)).want(a, refused()...)
		}
		a.user.send(http.MethodPatch, a.path("configmaps/x")+"?fieldManager=f", applyType, body).want(a, refused()...)
	}
	// The decoders would accept this, and remove or keep the field.
	const depth = 5000
	field := strings.Repeat("[", depth) + strings.Repeat("]", depth)
	body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"x":` + field + "}")
	for _, contentType := range []string{jsonType, yamlType} {
		a.user.send(
			http.MethodPost, a.path("configmaps?fieldValidation=Ignore"), contentType, body,
		).want(a, http.StatusBadRequest)
	}
	a.user.send(
		http.MethodPatch, a.path("configmaps/x?fieldManager=f&fieldValidation=Ignore"), applyType, body,
	).want(a, http.StatusBadRequest)
	// YAML that is not also JSON has a decoder of its own.
	yaml := append([]byte("# a comment\n"), body...)
	a.user.send(
		http.MethodPatch, a.path("configmaps/x?fieldManager=f&fieldValidation=Ignore"), applyType, yaml,
	).want(a, http.StatusBadRequest)
}

// aliases sends a small YAML document that stands for gigabytes.
func aliases(a *attack) {
	laughs := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'l'; c++ {
		laughs += fmt.Sprintf("%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 8), c-1)
	}
	a.user.send(http.MethodPost, a.path("configmaps"), yamlType, []byte(laughs)).want(a, refused()...)
	a.user.send(http.MethodPatch, a.path("configmaps/x?fieldManager=f"), applyType, []byte(laughs)).want(a, refused()...)
}

func jsonPatches(a *attack) {
	var long []any
	for range 10001 {
		long = append(long, map[string]any{"op": "test", "path": "/metadata/name", "value": "a"})
	}
	a.user.send(
		http.MethodPatch, a.path("configmaps/a"), jsonPatchType, encode(long),
	).want(a, http.StatusRequestEntityTooLarge)
	growing := []any{
		map[string]any{"op": "add", "path": "/data/k", "value": map[string]any{"x": strings.Repeat("x", 1000)}},
	}
	for i := range 40 {
		growing = append(growing, map[string]any{"op": "copy", "from": "/data", "path": fmt.Sprintf("/data/k%d", i)})
	}
	a.user.send(http.MethodPatch, a.path("configmaps/a"), jsonPatchType, encode(growing)).want(a, refused()...)
}

// deepPatches sends merge patches so deep that merging level by level takes quadratic time.
func deepPatches(a *attack) {
	deep := []byte(strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000))
	for _, contentType := range []string{mergeType, strategicType, applyType} {
		a.user.send(http.MethodPatch, a.path("configmaps/a?fieldManager=f"), contentType, deep).want(a, refused()...)
	}
	wide := []byte(
		`{"data":{"a":` + strings.Repeat(
			`{"x":"`+strings.Repeat("y", 200)+`","a":`, 9000,
		) + "1" + strings.Repeat("}", 9000) + "}}",
	)
	a.user.send(http.MethodPatch, a.path("configmaps/a"), mergeType, wide).want(a, refused()...)
}

func malformedProtobuf(a *attack) {
	header := []byte("k8s\x00")
	long := bytes.Repeat([]byte{0xff}, 100)
	group := bytes.Repeat([]byte{0x0b}, 100000) // nested groups
	wrap := func(raw []byte) []byte {
		// A runtime.Unknown: type metadata, and a raw field of the following length.
		message := append([]byte{0x0a, 0x0f, 0x0a, 0x02, 'v', '1', 0x12, 0x09}, "ConfigMap"...)
		message = append(message, 0x12)
		for n := len(raw); ; n >>= 7 {
			if n < 0x80 {
				message = append(message, byte(n))
				break
			}
			message = append(message, byte(n)|0x80)
		}
		return append(slices.Clone(header), append(message, raw...)...)
	}
	for _, body := range [][]byte{
		nil, header, append(slices.Clone(header), long...), append(slices.Clone(header), group...), wrap(long), wrap(group),
		wrap([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x07}),
		wrap([]byte{0x0a, 0x03, 0x0a, 0x01, 0xff}), // a name that is not valid UTF-8
	} {
		if body != nil {
			a.user.send(http.MethodPost, a.path("configmaps"), protoType, body).want(a, refused()...)
		}
	}
}

// malformedCBOR sends bodies that are not CBOR, are deep, or are shorter than they claim, and a quantity that takes
// long to parse, which the decoder itself would accept.
func malformedCBOR(a *attack) {
	limits := map[string]any{"cpu": "1e-9999999"}
	costly := pod("q", nil)
	costly["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"limits": limits}
	body, err := cbor.Marshal(costly)
	if err != nil {
		a.Fatal(err)
	}
	a.user.send(http.MethodPost, a.path("pods?dryRun=All"), cborType, body).want(a, http.StatusBadRequest)
	limits["cpu"] = "1"
	if body, err = cbor.Marshal(costly); err != nil {
		a.Fatal(err)
	}
	a.user.send(http.MethodPost, a.path("pods?dryRun=All"), cborType, body).want(a, http.StatusCreated)
	for _, body := range [][]byte{
		{0xff}, bytes.Repeat([]byte{0x9f}, 100000), bytes.Repeat([]byte{0x81}, 1<<20),
		{0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{0xbf}, {0xa1, 0x01, 0x02},
	} {
		a.user.send(http.MethodPost, a.path("configmaps"), cborType, body).want(a, http.StatusBadRequest)
	}
}

// quantities sends quantities whose text is short but whose value is huge, written in ways that a check of the text
// might miss.
func quantities(a *attack) {
	limited := func(member string) []byte {
		return []byte(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q"},"spec":{"containers":[{"name":"c","image":"i",` +
				`"resources":{"limits":{` + member + `}}}]}}`,
		)
	}
	for _, q := range []string{"011E011110011110", "1e-999999999", "1e999999999", "-1E-2147483647"} {
		quoted := fmt.Sprintf("%q", q)
		escaped := fmt.Sprintf(`"\u00%02x%s"`, q[0], q[1:])
		for _, member := range []string{
			`"cpu":` + quoted, `"cpu":` + escaped, `"cpu":` + quoted + `,"cpu":"1"`, `"cpu":"1","cpu":` + quoted,
		} {
			if a.Failed() {
				return // each of the others would take a minute, too
			}
			body := limited(member)
			for _, validation := range []string{"Strict", "Ignore"} {
				// A value that a second one replaces may be dropped without parsing it.
				statuses := append(refused(), http.StatusCreated)
				a.user.send(
					http.MethodPost, a.path("pods?dryRun=All&fieldValidation="+validation), jsonType, body,
				).want(a, statuses...)
				a.user.send(
					http.MethodPost, a.path("pods?dryRun=All&fieldValidation="+validation), yamlType, body,
				).want(a, statuses...)
			}
			a.user.send(
				http.MethodPatch, a.path("pods/q?dryRun=All&fieldManager=f"), applyType, body,
			).want(a, append(refused(), http.StatusCreated)...)
			patch := []byte(`{"spec":{"containers":[{"name":"c","resources":{"limits":{` + member + `}}}]}}`)
			for _, contentType := range []string{strategicType, mergeType} {
				a.user.send(
					http.MethodPatch, a.path("pods/p?dryRun=All"), contentType, patch,
				).want(a, append(refused(), http.StatusOK)...)
			}
		}
		nulled := []byte(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q"},"spec":{"containers":[{"name":"c","image":"i",` +
				`"resources":{"limits":{"cpu":` + quoted + `}}}],"containers":null}}`,
		)
		a.user.send(http.MethodPost, a.path("pods?dryRun=All&fieldValidation=Ignore"), jsonType, nulled).want(a, refused()...)
	}
}

func costlyRules(a *attack) {
	for i, schema := range []string{
		// This rule compares each element with every other one, and the list has no maximal length.
		`{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"},` +
			`"x-kubernetes-validations":[{"rule":"self.all(a, self.all(b, self.all(c, a != b || b != c)))"}]}}}`,
		`{"type":"object","properties":{"s":{"type":"array","items":{"type":"array","items":{"type":"string"}}}},` +
			`"x-kubernetes-validations":[{"rule":"self.s.all(x, x.all(y, y.matches('(a+)+b')))"}]}`,
	} {
		body := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",`+
			`"metadata":{"name":"costs%[1]d.hostile.example.com"},`+
			`"spec":{"group":"hostile.example.com","scope":"Cluster","names":{"plural":"costs%[1]d","kind":"Cost%[1]d"},`+
			`"versions":[{"name":"v1","served":true,"storage":true,`+
			`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%[2]s}}}}]}}`, i, schema)
		got := a.user.send(
			http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonType, []byte(body),
		).want(a, http.StatusUnprocessableEntity)
		if !strings.Contains(string(got.body), "cost") {
			a.Errorf("%s", shorten(string(got.body)))
		}
	}
}

// pathNames uses names of objects that lead to other places in a store or a URL.
func pathNames(a *attack) {
	for _, name := range []string{"..", ".", "a/b", "a%2fb", "../../secrets", "%"} {
		body := map[string]any{"metadata": map[string]any{"name": name}}
		a.user.send(http.MethodPost, a.path("configmaps"), jsonType, encode(body)).want(a, http.StatusUnprocessableEntity)
		a.user.send(
			http.MethodPost, a.groupPath("policy/v1", "poddisruptionbudgets"), jsonType, encode(body),
		).want(a, http.StatusUnprocessableEntity)
	}
	for _, name := range []string{"%2e%2e", "%2e", "a%252fb"} {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			a.user.send(method, a.path("configmaps/"+name), "", nil).want(a, http.StatusBadRequest)
		}
	}
	// An escaped slash is read as a slash: this is another resource, which the user may not read.
	a.user.get(a.path("configmaps/..%2fsecrets")).want(a, http.StatusNotFound, http.StatusForbidden, http.StatusBadRequest)
}

func patchDirectives(a *attack) {
	for _, patch := range []string{
		`{"spec":{"containers":[{"name":["a"]}]}}`,
		`{"spec":{"containers":[{"name":{"a":1},"image":"x"},{"name":{"a":1}}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":[]}],"containers":[{"name":[]}]}}`,
		`{"$retainKeys":[{}]}`, `{"spec":{"$retainKeys":[{}]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":[{}]}}`,
		`{"spec":{"containers":[{"$patch":"delete","name":["c"]}]}}`,
	} {
		a.user.send(
			http.MethodPatch, a.path("pods/p"), strategicType, []byte(patch),
		).want(a, append(refused(), http.StatusOK)...)
	}
}

// cheap is the limit for attacks that must be refused at once.
func cheap() limits { return limits{cpu: 500 * time.Millisecond, peak: 48 << 20} }
