package openapi

import (
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// path is one URL path with its operations.
type path struct {
	url string
	// parameters are the parameters of all operations of the path.
	parameters []parameter
	operations []operation
}

// operation is one HTTP method of a path.
type operation struct {
	method, action  string
	id, description string
	parameters      []parameter
	body            *body
	// result is the name of the definition that every success response has.
	result string
	codes  []string
}

// body is the request body of an operation.
type body struct {
	model    string
	optional bool
	types    []string
}

// parameter is a query or path parameter.
type parameter struct {
	name, in, kind, description string
	// shared is the name of the parameter among the shared parameters of the version 2 document, "" if it is not
	// shared.
	shared string
}

var (
	objectTypes = []string{"application/json", "application/yaml"}
	patchTypes  = []string{"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"}
)

// The parameters that all resources have. The names for version 2 contain the hash that the builder of
// kube-apiserver gives them, so the document of the built-in groups already has these parameters.
var (
	prettyParameter = parameter{"pretty", "query", "string",
		"If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget).",
		"pretty-tJGM1-ng"}
	namespaceParameter = parameter{
		"namespace", "path", "string", "object name and auth scope, such as for teams and projects", "namespace-vgWSWtn3",
	}
)

func getParameters() []parameter {
	return withDescriptions(metav1.GetOptions{}.SwaggerDoc(), []parameter{
		{name: "resourceVersion", kind: "string", shared: "resourceVersion-5WAnf1kx"},
	})
}

func listParameters() []parameter {
	return withDescriptions(metav1.ListOptions{}.SwaggerDoc(), []parameter{
		{name: "allowWatchBookmarks", kind: "boolean", shared: "allowWatchBookmarks-HC2hJt-J"},
		{name: "continue", kind: "string", shared: "continue-QfD61s0i"},
		{name: "fieldSelector", kind: "string", shared: "fieldSelector-xIcQKXFG"},
		{name: "labelSelector", kind: "string", shared: "labelSelector-5Zw57w4C"},
		{name: "limit", kind: "integer", shared: "limit-1NfNmdNH"},
		{name: "resourceVersion", kind: "string", shared: "resourceVersion-5WAnf1kx"},
		{name: "resourceVersionMatch", kind: "string", shared: "resourceVersionMatch-t8XhRHeC"},
		{name: "sendInitialEvents", kind: "boolean", shared: "sendInitialEvents-rLXlEK_k"},
		{name: "shardSelector", kind: "string", shared: "shardSelector-Kgyki_3_"},
		{name: "timeoutSeconds", kind: "integer", shared: "timeoutSeconds-yvYezaOC"},
		{name: "watch", kind: "boolean", shared: "watch-XNNPZGbK"},
	})
}

// writeParameters returns the parameters of create and update.
func writeParameters() []parameter {
	return withDescriptions(metav1.CreateOptions{}.SwaggerDoc(), []parameter{
		{name: "dryRun", kind: "string"},
		{name: "fieldManager", kind: "string", shared: "fieldManager-Qy4HdaTW"},
		{name: "fieldValidation", kind: "string"},
	})
}

func patchParameters() []parameter {
	return withDescriptions(metav1.PatchOptions{}.SwaggerDoc(), []parameter{
		{name: "dryRun", kind: "string"},
		{name: "fieldManager", kind: "string", shared: "fieldManager-7c6nTn1T"},
		{name: "fieldValidation", kind: "string"},
		{name: "force", kind: "boolean", shared: "force-tOGGb0Yi"},
	})
}

func deleteParameters() []parameter {
	return withDescriptions(metav1.DeleteOptions{}.SwaggerDoc(), []parameter{
		{name: "dryRun", kind: "string"},
		{name: "gracePeriodSeconds", kind: "integer", shared: "gracePeriodSeconds--K5HaBOS"},
		{
			name: "ignoreStoreReadErrorWithClusterBreakingPotential", kind: "boolean",
			shared: "ignoreStoreReadErrorWithClusterBreakingPotential-QbNkfIqj",
		},
		{name: "orphanDependents", kind: "boolean", shared: "orphanDependents-uRB25kX5"},
		{name: "propagationPolicy", kind: "string", shared: "propagationPolicy-6jk3prlO"},
	})
}

// withDescriptions makes the parameters query parameters, with their descriptions from doc.
func withDescriptions(doc map[string]string, parameters []parameter) []parameter {
	for i := range parameters {
		parameters[i].in, parameters[i].description = "query", doc[parameters[i].name]
	}
	return parameters
}

func (r *resource) paths() []path {
	root := "/apis/" + r.Group + "/" + r.Version
	var common []parameter
	var paths []path
	if r.namespaced {
		list := r.list("ForAllNamespaces", "")
		// Parameters that all operations of a path share are part of the path. This path has only one operation.
		parameters := insert(list.parameters, prettyParameter)
		list.parameters = nil
		paths = append(paths, path{root + "/" + r.plural, parameters, []operation{list}})
		root += "/namespaces/{namespace}"
		common = append(common, namespaceParameter)
	}
	collection := root + "/" + r.plural
	common = append(common, prettyParameter)
	paths = append(paths, path{collection, common, []operation{r.list("", r.scope()), r.create(), r.deleteCollection()}})

	named := append(
		[]parameter{{name: "name", in: "path", kind: "string", description: "name of the " + r.Kind}}, common...,
	)
	object := r.model(r.Kind)
	paths = append(
		paths,
		path{
			collection + "/{name}", named,
			[]operation{r.read("", object), r.replace("", object), r.delete(), r.patch("", object)},
		},
	)
	if r.status {
		paths = append(paths, r.subresource(collection, "status", object, named))
	}
	if r.scale {
		paths = append(paths, r.subresource(collection, "scale", scaleModel, named))
	}
	return paths
}

// insert inserts a parameter into a list that is sorted by name.
func insert(parameters []parameter, p parameter) []parameter {
	for i := range parameters {
		if p.name < parameters[i].name {
			return append(append(append([]parameter{}, parameters[:i]...), p), parameters[i:]...)
		}
	}
	return append(parameters, p)
}

// scope returns "Namespaced" or "" for an operationId.
func (r *resource) scope() string {
	if r.namespaced {
		return "Namespaced"
	}
	return ""
}

func (r *resource) subresource(collection, name, model string, parameters []parameter) path {
	return path{
		collection + "/{name}/" + name, parameters,
		[]operation{r.read(name, model), r.replace(name, model), r.patch(name, model)},
	}
}

func (r *resource) list(suffix, scope string) operation {
	return operation{
		method: "get", action: "list", id: r.id("list", scope+r.Kind+suffix), description: "list objects of kind " + r.Kind,
		parameters: listParameters(), result: r.model(r.listKind), codes: []string{"200"},
	}
}

func (r *resource) create() operation {
	object := r.model(r.Kind)
	return operation{
		method: "post", action: "post", id: r.id("create", r.scope()+r.Kind),
		description: "create" + article(r.Kind) + r.Kind,
		parameters:  writeParameters(), body: &body{model: object, types: objectTypes}, result: object,
		codes: []string{"200", "201", "202"},
	}
}

func (r *resource) deleteCollection() operation {
	return operation{
		method: "delete", action: "deletecollection", id: r.id("delete", "Collection"+r.scope()+r.Kind),
		description: "delete collection of " + r.Kind,
		parameters:  listParameters(), result: statusModel, codes: []string{"200"},
	}
}

func (r *resource) read(sub, model string) operation {
	return operation{
		method: "get", action: "get", id: r.id("read", r.scope()+r.Kind+title(sub)),
		description: "read" + ofSubresource(sub) + " the specified " + r.Kind,
		parameters:  getParameters(), result: model, codes: []string{"200"},
	}
}

func (r *resource) replace(sub, model string) operation {
	return operation{
		method: "put", action: "put", id: r.id("replace", r.scope()+r.Kind+title(sub)),
		description: "replace" + ofSubresource(sub) + " the specified " + r.Kind,
		parameters:  writeParameters(), body: &body{model: model, types: objectTypes}, result: model,
		codes: []string{"200", "201"},
	}
}

func (r *resource) delete() operation {
	return operation{
		method: "delete", action: "delete", id: r.id("delete", r.scope()+r.Kind),
		description: "delete" + article(r.Kind) + r.Kind,
		parameters:  deleteParameters(), body: &body{model: deleteOptionsModel, optional: true, types: objectTypes},
		result: statusModel, codes: []string{"200", "202"},
	}
}

func (r *resource) patch(sub, model string) operation {
	return operation{
		method: "patch", action: "patch", id: r.id("patch", r.scope()+r.Kind+title(sub)),
		description: "partially update" + ofSubresource(sub) + " the specified " + r.Kind,
		parameters:  patchParameters(), body: &body{model: patchModel, types: patchTypes}, result: model,
		codes: []string{"200"},
	}
}

// title returns the name of a subresource for an operationId.
func title(sub string) string {
	if sub == "" {
		return ""
	}
	return strings.ToUpper(sub[:1]) + sub[1:]
}

// ofSubresource returns the part of a description that names the subresource, or "".
func ofSubresource(sub string) string {
	if sub == "" {
		return ""
	}
	return " " + sub + " of"
}

// article returns the indefinite article of a kind between blanks, or one blank if the kind looks like a plural.
func article(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"):
		return " "
	case kind != "" && strings.ContainsRune("aeiouAEIOU", rune(kind[0])):
		return " an "
	}
	return " a "
}

// id returns the operationId, which is unique in the document of all groups.
func (r *resource) id(verb, rest string) string {
	return verb + identifier(
		strings.TrimSuffix(r.Group, ".k8s.io"), true,
	) + identifier(r.Version, true) + identifier(rest, true)
}

// tag returns the tag of the operations of a group and version.
func (r *resource) tag() string {
	return identifier(strings.TrimSuffix(r.Group, ".k8s.io"), false) + "_" + identifier(r.Version, false)
}

// identifier returns s in camel case, without the characters that an identifier may not contain.
func identifier(s string, capital bool) string {
	var out strings.Builder
	for i, c := range s {
		switch {
		case !unicode.IsLetter(c) && c != '_' && (i == 0 || !unicode.IsDigit(c)):
			capital = true
		case capital:
			out.WriteRune(unicode.ToUpper(c))
			capital = false
		default:
			out.WriteRune(c)
		}
	}
	return out.String()
}
