package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A definition is what a life begins with, or changes its definition to.
type definition struct {
	scope, names, conversion, meta, preserve string
	versions                                 []string
}

const (
	thingNames = `{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList","shortNames":["th"],` +
		`"categories":["all"]}`
	withoutConversion = `{"strategy":"None","webhook":null}`
	withWebhook       = `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"CONVERTER",` +
		`"caBundle":"CABUNDLE"}}}`
	thingFields = `"size":{"type":"integer"},"note":{"type":"string"},"replicas":{"type":"integer"}`
	both        = `,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.ready"}}`
)

// version returns a version of a definition.
func version(name string, served, storage bool, fields, more string) string {
	return fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","properties":{`+
		`"spec":{"type":"object","properties":{%s}},"status":{"type":"object","properties":{"ready":{"type":"integer"}}}}}}%s}`,
		name, served, storage, fields, more)
}

// plainDefinition has two versions, and v1 is stored.
func plainDefinition() definition {
	return definition{scope: "Namespaced", names: thingNames, versions: []string{
		version("v1", true, true, thingFields, ""), version("v2", true, false, thingFields, "")}}
}

func (d definition) spec() string {
	out := `"scope":"` + d.scope + `","names":` + d.names
	if d.conversion != "" {
		out += `,"conversion":` + d.conversion
	}
	if d.preserve != "" {
		out += `,"preserveUnknownFields":` + d.preserve
	}
	return out + `,"versions":[` + strings.Join(d.versions, ",") + `]`
}

func (d definition) create() request {
	body := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.GROUP"` + d.meta +
		`},"spec":{"group":"GROUP",` + d.spec() + `}}`
	return request{method: http.MethodPost, path: "CRD", body: strings.ReplaceAll(body, `,"webhook":null`, "")}
}

// patch changes the definition to d.
func (d definition) patch() request {
	return request{method: http.MethodPatch, path: definitionPath, body: `{"spec":{` + d.spec() + `}}`, contentType: mergePatch}
}

// changed returns the definition after f.
func (d definition) changed(f func(*definition)) definition {
	d.versions = append([]string{}, d.versions...)
	f(&d)
	return d
}

const (
	definitionPath = "CRD/things.GROUP"
	thingsA        = "/apis/GROUP/v1/namespaces/NSA/things"
	thingsB        = "/apis/GROUP/v1/namespaces/NSB/things"
	thingsA2       = "/apis/GROUP/v2/namespaces/NSA/things"
	oneA           = thingsA + "/one"
	oneA2          = thingsA2 + "/one"
	apply          = "application/apply-patch+yaml"
)

func post(path, body string) request { return request{method: http.MethodPost, path: path, body: body} }
func put(path, body string) request  { return request{method: http.MethodPut, path: path, body: body} }
func remove(path string) request     { return request{method: http.MethodDelete, path: path} }
func removeBy(path, options string) request {
	return request{method: http.MethodDelete, path: path, body: options}
}
func merge(path, body string) request {
	return request{method: http.MethodPatch, path: path, body: body, contentType: mergePatch}
}
func applied(path, body string) request {
	return request{method: http.MethodPatch, path: path + "?fieldManager=applier", body: body, contentType: apply}
}

// thing returns an object, with more of its metadata and of its spec.
func thing(version, name, meta, spec string) string {
	return `{"apiVersion":"GROUP/` + version + `","kind":"Thing","metadata":{"name":"` + name + `"` + meta + `},"spec":{` + spec + `}}`
}

const (
	red       = `,"labels":{"color":"red"}`
	finalized = `,"finalizers":["example.org/held"]`
)

func twoThings() []request {
	return []request{post(thingsA, thing("v1", "one", red, `"size":1,"note":"a"`)), post(thingsB, thing("v1", "two", "", `"size":2`))}
}

func heldThings() []request {
	return []request{post(thingsA, thing("v1", "one", red+finalized, `"size":1`)), post(thingsB, thing("v1", "two", "", `"size":2`))}
}

func wrote(name string, writes ...request) lifeStep { return lifeStep{name: name, writes: writes} }

// gone is a step after which the definition is not there.
func gone(name string, writes ...request) lifeStep {
	return lifeStep{name: name, writes: writes, bound: 8 * time.Second, until: map[string]string{
		"definition": "404", "discovery v1": "404", "discovery v2": "404", "list v1": "404"}}
}

// served is a step after which v1 is served.
func served(name string, writes ...request) lifeStep {
	return lifeStep{name: name, writes: writes, until: map[string]string{"list v1": "200", "discovery v1": "200", "apiservice v1": "200"}}
}

func deleted() lifeStep { return gone("delete", remove(definitionPath)) }

func definitionLives() []life {
	return slicesOf(livesThatEnd(), livesThatReturn(), livesOfVersions(), livesOfSchemas(), livesOfNames(), livesOfConversion(),
		livesOfOthers())
}

func slicesOf(lists ...[]life) (out []life) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func livesThatEnd() []life {
	plain := plainDefinition()
	strange := plain.changed(func(d *definition) { d.meta = `,"finalizers":["example.org/held"]` })
	release := merge(oneA, `{"metadata":{"finalizers":null}}`)
	withOptions := func(options string) []lifeStep { return []lifeStep{gone("delete", removeBy(definitionPath, options))} }
	return []life{
		{name: "empty", born: plain, steps: []lifeStep{deleted()}},
		{name: "objects", born: plain, objects: twoThings(), steps: []lifeStep{deleted()}},
		{name: "cluster", born: plain.changed(func(d *definition) { d.scope = "Cluster" }), objects: []request{
			post("/apis/GROUP/v1/things", thing("v1", "one", red, `"size":1`)),
			post("/apis/GROUP/v1/things", thing("v1", "two", "", `"size":2`))}, steps: []lifeStep{
			wrote("change", merge("/apis/GROUP/v1/things/one", `{"spec":{"size":3}}`)), deleted()}},
		{name: "held objects", born: plain, objects: heldThings(), steps: []lifeStep{
			{name: "delete", writes: []request{remove(definitionPath)}, until: map[string]string{
				"definition": "Terminating True", "list v1": "deleted"}},
			wrote("create", post(thingsA, thing("v1", "three", "", `"size":3`)), applied(thingsA+"/four", thing("v1", "four", "", ""))),
			wrote("change", merge(oneA, `{"spec":{"size":5}}`), merge(oneA2, `{"metadata":{"labels":{"color":"blue"}}}`)),
			gone("release", release)}},
		{name: "held definition", born: strange, objects: twoThings(), steps: []lifeStep{
			{name: "delete", writes: []request{remove(definitionPath)}, until: map[string]string{
				"definition": "InstanceDeletionCompleted", "list v1": "List"}},
			wrote("create", post(thingsA, thing("v1", "three", "", `"size":3`)), applied(thingsA+"/four", thing("v1", "four", "", ""))),
			gone("release", merge(definitionPath, `{"metadata":{"finalizers":null}}`)),
			served("recreate", plain.create())}},
		{name: "held definition of held objects", born: strange, objects: heldThings(), steps: []lifeStep{
			{name: "delete", writes: []request{remove(definitionPath)}, until: map[string]string{"list v1": "deleted"}},
			{name: "release object", writes: []request{release}, bound: 8 * time.Second, until: map[string]string{
				"definition": "InstanceDeletionCompleted"}},
			gone("release", merge(definitionPath, `{"metadata":{"finalizers":null}}`))}},
		{name: "orphan", born: plain, objects: twoThings(), steps: withOptions(`{"propagationPolicy":"Orphan"}`)},
		{name: "background", born: plain, objects: twoThings(), steps: withOptions(`{"propagationPolicy":"Background"}`)},
		{name: "foreground", born: plain, objects: twoThings(), steps: []lifeStep{
			{name: "delete", writes: []request{removeBy(definitionPath, `{"propagationPolicy":"Foreground"}`)}, until: map[string]string{
				"definition": "foregroundDeletion", "list v1": "List"}},
			gone("release", merge(definitionPath, `{"metadata":{"finalizers":null}}`))}},
		{name: "dry run", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("delete", remove(definitionPath+"?dryRun=All"), remove(oneA+"?dryRun=All"), remove(thingsA+"?dryRun=All")),
			wrote("preconditions", removeBy(definitionPath, `{"preconditions":{"uid":"8c9ac6d1-9d2b-4e5a-8bd4-9f1a5b8d0b0a"}}`)),
			wrote("change", merge(oneA, `{"spec":{"size":9}}`)), deleted()}},
		{name: "collection", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("objects", remove("/apis/GROUP/v2/namespaces/NSA/things"), remove(thingsB)),
			gone("definitions", remove("CRD?fieldSelector=metadata.name%3Dthings.GROUP"))}},
		{name: "deleted twice", born: plain, objects: heldThings(), steps: []lifeStep{
			{name: "delete", writes: []request{remove(definitionPath), remove(definitionPath)}, until: map[string]string{
				"list v1": "deleted"}},
			wrote("finalizer taken", merge(definitionPath, `{"metadata":{"finalizers":null}}`)),
			served("recreate", plain.create()),
			wrote("release", release)}},
	}
}

func livesThatReturn() []life {
	plain := plainDefinition()
	again := func(f func(*definition)) []lifeStep {
		created := plain.changed(f)
		return []lifeStep{deleted(), served("recreate", created.create()),
			wrote("create", post(thingsA, thing("v1", "one", red, `"size":7,"note":"n"`)), post("/apis/GROUP/v1/things", thing("v1", "one", red, `"size":7`)))}
	}
	return []life{
		{name: "recreated", born: plain, objects: twoThings(), steps: again(func(*definition) {})},
		{name: "recreated cluster", born: plain, objects: twoThings(), steps: again(func(d *definition) { d.scope = "Cluster" })},
		{name: "recreated schema", born: plain, objects: twoThings(), steps: again(func(d *definition) {
			d.versions[0] = version("v1", true, true, `"size":{"type":"string"},"more":{"type":"string","default":"x"}`, "")
		})},
		{name: "recreated version", born: plain, objects: twoThings(), steps: again(func(d *definition) {
			d.versions[1] = version("v3", true, false, thingFields, "")
		})},
		{name: "recreated kind", born: plain, objects: twoThings(), steps: again(func(d *definition) {
			d.names = `{"plural":"things","singular":"item","kind":"Item","listKind":"ItemList"}`
		})},
		{name: "recreated at once", born: plain, objects: heldThings(), steps: []lifeStep{
			wrote("delete", remove(definitionPath), plain.create()),
			gone("release", merge(oneA, `{"metadata":{"finalizers":null}}`)), served("recreate", plain.create()),
			wrote("create", post(thingsA, thing("v1", "one", red, `"size":7`)))}},
	}
}

func livesOfVersions() []life {
	plain := plainDefinition()
	v1, v2 := version("v1", true, false, thingFields, ""), version("v2", true, true, thingFields, "")
	with := func(versions ...string) request {
		return plain.changed(func(d *definition) { d.versions = versions }).patch()
	}
	change := func(i int) request { return merge(oneA, fmt.Sprintf(`{"spec":{"size":%d}}`, i)) }
	return []life{
		{name: "version added", born: plain, objects: twoThings(), steps: []lifeStep{
			{name: "add", writes: []request{with(plain.versions[0], plain.versions[1], version("v3", true, false, thingFields, ""))},
				until: map[string]string{"list v3": "200", "discovery v3": "200"}},
			wrote("change", change(3)),
			{name: "remove", writes: []request{with(plain.versions...)}, until: map[string]string{"list v3": "404", "discovery v3": "404"}},
			wrote("change again", change(4))}},
		{name: "version removed", born: plain, objects: twoThings(), steps: []lifeStep{
			{name: "remove", writes: []request{with(plain.versions[0])}, until: map[string]string{"list v2": "404", "discovery v2": "404",
				"apiservice v2": "404"}},
			wrote("change", change(3)), deleted()}},
		{name: "served off and on", born: plain, objects: twoThings(), steps: []lifeStep{
			{name: "off", writes: []request{with(plain.versions[0], version("v2", false, false, thingFields, ""))}, until: map[string]string{
				"list v2": "404", "discovery v2": "404", "apiservice v2": "404"}},
			wrote("change", change(3)),
			{name: "on", writes: []request{with(plain.versions...)}, until: map[string]string{"list v2": "200", "discovery v2": "200"}},
			wrote("change again", change(4))}},
		{name: "none served", born: plain, objects: twoThings(), steps: []lifeStep{
			{name: "off", writes: []request{with(version("v1", false, true, thingFields, ""), version("v2", false, false, thingFields, ""))},
				until: map[string]string{"list v1": "404", "list v2": "404", "discovery v1": "404", "discovery v2": "404"}},
			gone("delete", remove(definitionPath)), served("recreate", plain.create())}},
		{name: "storage switched", born: plain, objects: twoThings(), steps: []lifeStep{
			{name: "switch", writes: []request{with(v1, v2)}, until: map[string]string{"definition": `stored ["v1","v2"]`}},
			wrote("empty patch", merge(oneA, `{}`)), wrote("equal put", put(thingsB+"/two", "SAME")),
			wrote("stored versions", merge(definitionPath+"/status", `{"status":{"storedVersions":["v2"]}}`)),
			{name: "remove", writes: []request{with(v2)}, until: map[string]string{"list v1": "404", "discovery v1": "404"}},
			wrote("change", merge(oneA2, `{"spec":{"size":8}}`))}},
		{name: "stored removed", born: plain, objects: twoThings(), steps: []lifeStep{wrote("remove", with(v2)), wrote("change", change(3))}},
	}
}

func livesOfSchemas() []life {
	plain := plainDefinition()
	schema := func(fields, more string) definition {
		return plain.changed(func(d *definition) {
			d.versions = []string{version("v1", true, true, fields, more), version("v2", true, false, fields, more)}
		})
	}
	writes := []lifeStep{
		wrote("empty patch", merge(oneA, `{}`)), wrote("equal put", put(thingsB+"/two", "SAME")),
		wrote("apply", applied(oneA, thing("v1", "one", "", `"size":1`))), wrote("apply again", applied(oneA, thing("v1", "one", "", `"size":1`))),
	}
	selectable := `,"selectableFields":[{"jsonPath":".spec.note"}]`
	status := schema(thingFields, both)
	preserving := schema(thingFields+`,"tail":{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, "")
	return []life{
		{name: "default added", born: plain, objects: twoThings(), steps: append([]lifeStep{
			{name: "add", writes: []request{schema(thingFields+`,"more":{"type":"string","default":"x"}`, "").patch()},
				until: map[string]string{"list v1": `"more":"x"`}}}, writes...)},
		{name: "field lost", born: plain, objects: twoThings(), steps: append(append([]lifeStep{
			{name: "lose", writes: []request{schema(`"size":{"type":"integer"}`, "").patch()}}}, writes...),
			wrote("old schema", plain.patch()), wrote("change", merge(oneA, `{"spec":{"size":4}}`)))},
		{name: "status added", born: plain, objects: twoThings(), steps: []lifeStep{
			{name: "add", writes: []request{status.patch()}, until: map[string]string{"discovery v1": "things/status"}},
			wrote("status", merge(oneA+"/status", `{"status":{"ready":1}}`), merge(oneA+"/status", `{"status":{"ready":1}}`)),
			wrote("scale", merge(oneA+"/scale", `{"spec":{"replicas":2}}`)),
			{name: "remove", writes: []request{request{method: http.MethodPut, path: definitionPath, body: "SAME"},
				schema(thingFields, "").patch()}, until: map[string]string{"get v1": "200"}},
			wrote("after", merge(oneA+"/status", `{"status":{"ready":2}}`), merge(oneA, `{"status":{"ready":3}}`))}},
		{name: "status removed", born: status, objects: twoThings(), steps: []lifeStep{
			wrote("status", merge(oneA+"/status", `{"status":{"ready":1}}`), merge(oneA, `{"status":{"ready":4}}`)),
			wrote("remove", schema(thingFields, "").patch()), wrote("after", merge(oneA, `{"status":{"ready":3}}`))}},
		{name: "unknown fields", born: preserving, objects: []request{
			post(thingsA, thing("v1", "one", red, `"size":1,"tail":{"x":1},"odd":2`))}, steps: []lifeStep{
			wrote("global", plain.changed(func(d *definition) { d.preserve = "true" }).patch()),
			wrote("pruned", plain.patch()), wrote("empty patch", merge(oneA, `{}`)), wrote("back", preserving.patch())}},
		{name: "selectable", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("add", schema(thingFields, selectable).patch()),
			wrote("select", request{method: http.MethodGet, path: thingsA + "?fieldSelector=spec.note%3Da"}),
			wrote("change", merge(oneA, `{"spec":{"note":"b"}}`), merge(oneA, `{"spec":{"note":"a"}}`)),
			wrote("remove", plain.patch()), wrote("change again", merge(oneA, `{"spec":{"note":"c"}}`))},
			watches: []*lifeWatch{{name: "selected", path: thingsA, query: "fieldSelector=spec.note%3Da"}}},
		{name: "columns", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("add", schema(thingFields, `,"additionalPrinterColumns":[{"name":"Size","type":"integer","jsonPath":".spec.size"}]`).patch()),
			wrote("change", merge(oneA, `{"spec":{"size":5}}`)), deleted()}},
		{name: "invalid", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("plural", merge(definitionPath, `{"spec":{"names":{"plural":"items"}}}`)),
			wrote("group", merge(definitionPath, `{"spec":{"group":"other.example.org"}}`)),
			wrote("scope", merge(definitionPath, `{"spec":{"scope":"Cluster"}}`)),
			wrote("storage", plain.changed(func(d *definition) { d.versions[0] = version("v1", true, false, thingFields, "") }).patch()),
			wrote("schema", schema(`"size":{"type":"number","default":"x"}`, "").patch()),
			wrote("none", merge(definitionPath, `{"spec":{"versions":[]}}`)),
			wrote("stored", merge(definitionPath+"/status", `{"status":{"storedVersions":["v7"]}}`)),
			wrote("change", merge(oneA, `{"spec":{"size":5}}`))}},
		{name: "twice at once", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("changes", schema(thingFields+`,"a":{"type":"string","default":"x"}`, "").patch(),
				schema(thingFields+`,"b":{"type":"string","default":"y"}`, "").patch()),
			wrote("change", merge(oneA, `{"spec":{"size":5}}`)), wrote("create", post(thingsA, thing("v1", "three", red, `"size":3`)))}},
		{name: "stricter", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("change", schema(`"size":{"type":"integer","minimum":5},"note":{"type":"string"}`, "").patch()),
			wrote("write", merge(oneA, `{"spec":{"note":"z"}}`), merge(oneA, `{"spec":{"size":2}}`), merge(oneA, `{"spec":{"size":6}}`)), deleted()}},
	}
}

func livesOfNames() []life {
	plain := plainDefinition()
	named := func(names string) request { return plain.changed(func(d *definition) { d.names = names }).patch() }
	other := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"others.GROUP"},"spec":{` +
		`"group":"GROUP","scope":"Namespaced","names":{"plural":"others","kind":"%s","shortNames":["th"]},"versions":[` +
		strings.Join(plain.versions, ",") + `]}}`
	return []life{
		{name: "names", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("short", named(strings.Replace(thingNames, `"th"`, `"ti","tj"`, 1))),
			wrote("categories", named(strings.Replace(thingNames, `"all"`, `"some"`, 1))),
			wrote("list kind", named(strings.Replace(thingNames, "ThingList", "Things", 1))),
			wrote("kind", named(strings.Replace(thingNames, `"Thing"`, `"Stuff"`, 1))),
			wrote("change", merge(oneA, `{"spec":{"size":5}}`)), deleted()}},
		{name: "conflict", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("other", post("CRD", fmt.Sprintf(other, "Thing"))),
			wrote("other kind", merge("CRD/others.GROUP", `{"spec":{"names":{"kind":"Other","listKind":"OtherList"}}}`)),
			wrote("conflicting change", named(strings.Replace(thingNames, `"Thing"`, `"Other"`, 1))),
			{name: "delete other", writes: []request{remove("CRD/others.GROUP")}, bound: 8 * time.Second,
				until: map[string]string{"other": "404"}},
			wrote("change", merge(oneA, `{"spec":{"size":5}}`))}},
		{name: "conflict resolved", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("other", post("CRD", fmt.Sprintf(other, "Thing"))),
			{name: "delete", writes: []request{remove(definitionPath)}, bound: 8 * time.Second, until: map[string]string{
				"definition": "404", "other": "Established True"}},
			wrote("create", post("/apis/GROUP/v1/namespaces/NSA/others", thing("v1", "three", "", `"size":3`)))}},
	}
}

func livesOfConversion() []life {
	plain := plainDefinition()
	hooked := plain.changed(func(d *definition) { d.conversion = withWebhook })
	without := plain.changed(func(d *definition) { d.conversion = withoutConversion })
	down := func(name string, writes ...request) lifeStep { return lifeStep{name: name, writes: writes, down: true} }
	up := func(name string, writes ...request) lifeStep { return lifeStep{name: name, writes: writes, up: true} }
	change := merge(oneA, `{"spec":{"size":6}}`)
	return []life{
		{name: "conversion switched", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("webhook", hooked.patch()), wrote("change", change), wrote("none", without.patch()),
			wrote("change again", merge(oneA2, `{"spec":{"size":7}}`))}},
		{name: "webhook down", born: hooked, objects: twoThings(), steps: []lifeStep{
			down("change", change), wrote("reads", request{method: http.MethodGet, path: oneA2}), up("up"),
			wrote("change again", merge(oneA, `{"spec":{"size":7}}`))}},
		{name: "webhook down and delete", born: hooked, objects: twoThings(), steps: []lifeStep{
			down("delete", remove(oneA2)), up("up"), wrote("change", merge(thingsB+"/two", `{"spec":{"size":7}}`))}},
		{name: "webhook down and collection", born: hooked, objects: twoThings(), steps: []lifeStep{
			down("delete", remove("/apis/GROUP/v2/namespaces/NSB/things")), up("up"), wrote("change", change)}},
		{name: "webhook down and writes", born: hooked, objects: twoThings(), steps: []lifeStep{
			down("put", put(oneA2,
				`{"apiVersion":"GROUP/v2","kind":"Thing","metadata":{"name":"one","namespace":"NSA"},"spec":{"size":8}}`)),
			wrote("patch", merge(oneA2, `{"spec":{"size":7}}`)), wrote("apply", applied(oneA2, thing("v2", "one", "", `"size":9`))),
			wrote("create", post(thingsA2, thing("v2", "three", "", `"size":3`))), up("up"), wrote("change", merge(oneA2, `{"spec":{"size":7}}`))}},
		{name: "webhook down and definition deleted", born: hooked, objects: twoThings(), steps: []lifeStep{
			lifeStep{name: "delete", down: true, writes: []request{remove(definitionPath)}, bound: 8 * time.Second,
				until: map[string]string{"definition": "404"}}}},
	}
}

func livesOfOthers() []life {
	plain := plainDefinition()
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	automatic := map[string]string{"apiservice v2": "Local"}
	taken := `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v3.GROUP"},"spec":{"group":"GROUP",` +
		`"version":"v3","groupPriorityMinimum":17,"versionPriority":9}}`
	return []life{
		{name: "apiservice deleted", born: plain, objects: twoThings(), steps: []lifeStep{
			{name: "delete", writes: []request{remove(services + "/v2.GROUP")}, until: automatic},
			wrote("change", merge(oneA, `{"spec":{"size":5}}`)), deleted()}},
		{name: "apiservice changed", born: plain, objects: twoThings(), steps: []lifeStep{
			{name: "priority", writes: []request{merge(services+"/v2.GROUP", `{"spec":{"groupPriorityMinimum":17}}`)}, until: map[string]string{
				"apiservice v2": "priority 1000"}},
			wrote("label", merge(services+"/v2.GROUP", `{"metadata":{"labels":{"own":"x"}}}`)), deleted()}},
		{name: "apiservice taken over", born: plain, objects: twoThings(), steps: []lifeStep{
			wrote("take", merge(services+"/v2.GROUP", `{"metadata":{"labels":null},"spec":{"groupPriorityMinimum":17}}`)),
			wrote("change", merge(oneA, `{"spec":{"size":5}}`)),
			{name: "delete", writes: []request{remove(services + "/v2.GROUP")}, until: automatic}, deleted()}},
		{name: "apiservice before", born: plain, objects: twoThings(), watches: []*lifeWatch{{
			name: "apiservice v3", path: services, query: "fieldSelector=metadata.name%3Dv3.GROUP"}}, steps: []lifeStep{
			wrote("service", post(services, taken)),
			wrote("version", plain.changed(func(d *definition) {
				d.versions = append(d.versions, version("v3", true, false, thingFields, ""))
			}).patch()),
			wrote("version removed", plain.patch()), wrote("delete service", remove(services+"/v3.GROUP")), deleted()}},
		{name: "namespace deleted", born: plain, objects: heldThings(), steps: []lifeStep{
			wrote("namespace", remove("/api/v1/namespaces/NSA")),
			wrote("create", post(thingsA, thing("v1", "three", "", `"size":3`)), merge(oneA, `{"spec":{"size":5}}`)),
			{name: "definition", writes: []request{remove(definitionPath)}, until: map[string]string{"list v1": "deleted"}},
			gone("release", merge(oneA, `{"metadata":{"finalizers":null}}`))}},
	}
}
