package openapi

import (
	"encoding/json"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
)

// v3Document returns the OpenAPI version 3 document of the resources of one group and version.
func v3Document(resources []*resource, shared *sharedDefinitions) ([]byte, error) {
	schemas := map[string]any{}
	paths := map[string]any{}
	scale := false
	for _, r := range resources {
		for name, s := range r.definitions(v3) {
			schemas[name] = s
		}
		for _, p := range r.paths() {
			paths[p.url] = v3Path(r, &p)
		}
		scale = scale || r.scale
	}
	add := func(members []archive.Member) {
		for _, m := range members {
			if _, taken := schemas[string(m.Key)]; !taken {
				schemas[string(m.Key)] = json.RawMessage(m.Value)
			}
		}
	}
	add(shared.all)
	if scale {
		add(shared.scale)
	}
	return json.Marshal(map[string]any{
		"openapi":    "3.0.0",
		"info":       map[string]any{"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
		"paths":      paths,
		"components": map[string]any{"schemas": schemas},
	})
}

// v2Document returns the part of the OpenAPI version 2 document that the resources add.
func v2Document(resources []*resource) ([]byte, error) {
	definitions := map[string]any{}
	paths := map[string]any{}
	for _, r := range resources {
		for name, s := range r.definitions(v2) {
			definitions[name] = s
		}
		for _, p := range r.paths() {
			paths[p.url] = v2Path(r, &p)
		}
	}
	return json.Marshal(map[string]any{"paths": paths, "definitions": definitions})
}

// entry returns the members of an operation that both versions of OpenAPI have.
func (o *operation) entry(r *resource) map[string]any {
	return map[string]any{
		"description": o.description, "operationId": o.id, "tags": []string{r.tag()},
		"x-kubernetes-action":             o.action,
		"x-kubernetes-group-version-kind": map[string]any{"group": r.Group, "version": r.Version, "kind": r.Kind},
	}
}

// codeTexts are the descriptions of success responses.
var codeTexts = map[string]string{"200": "OK", "201": "Created", "202": "Accepted"}

// responses returns the responses of an operation, each with the content.
func (o *operation) responses(name string, content any) map[string]any {
	out := map[string]any{"401": map[string]any{"description": "Unauthorized"}}
	for _, code := range o.codes {
		out[code] = map[string]any{"description": codeTexts[code], name: content}
	}
	return out
}

// v3Path returns the entry of a path in a version 3 document.
func v3Path(r *resource, p *path) map[string]any {
	out := map[string]any{"parameters": v3Parameters(p.parameters)}
	for i := range p.operations {
		o := &p.operations[i]
		entry := o.entry(r)
		if len(o.parameters) > 0 {
			entry["parameters"] = v3Parameters(o.parameters)
		}
		if o.body != nil {
			request := map[string]any{"content": v3Content(o.body.model, o.body.types)}
			if !o.body.optional {
				request["required"] = true
			}
			entry["requestBody"] = request
		}
		entry["responses"] = o.responses("content", v3Content(o.result, objectTypes))
		out[o.method] = entry
	}
	return out
}

// v3Content returns the content of a body in each media type.
func v3Content(model string, types []string) map[string]any {
	out := make(map[string]any, len(types))
	for _, t := range types {
		out[t] = map[string]any{"schema": map[string]any{"$ref": v3.ref(model)}}
	}
	return out
}

func v3Parameters(parameters []parameter) []any {
	out := make([]any, len(parameters))
	for i, p := range parameters {
		m := map[string]any{
			"name": p.name, "in": p.in, "description": p.description,
			"schema": map[string]any{"type": p.kind, "uniqueItems": true},
		}
		if p.in == "path" {
			m["required"] = true
		}
		out[i] = m
	}
	return out
}

// v2Path returns the entry of a path in the version 2 document.
func v2Path(r *resource, p *path) map[string]any {
	out := map[string]any{"parameters": v2Parameters(nil, p.parameters)}
	for i := range p.operations {
		o := &p.operations[i]
		entry := o.entry(r)
		if o.body != nil || len(o.parameters) > 0 {
			entry["parameters"] = v2Parameters(o.body, o.parameters)
		}
		entry["consumes"], entry["produces"], entry["schemes"] = objectTypes, objectTypes, []string{"https"}
		if o.body != nil {
			entry["consumes"] = o.body.types
		}
		entry["responses"] = o.responses("schema", map[string]any{"$ref": v2.ref(o.result)})
		out[o.method] = entry
	}
	return out
}

// v2SharedBodies are the bodies that the version 2 document has as shared parameters.
var v2SharedBodies = map[string]string{deleteOptionsModel: "body-2Y1dVQaQ", patchModel: "body-78PwaGsr"}

func v2Parameters(b *body, parameters []parameter) []any {
	out := make([]any, 0, len(parameters)+1)
	shared := func(name string) any { return map[string]any{"$ref": "#/parameters/" + name} }
	switch {
	case b == nil:
	case v2SharedBodies[b.model] != "":
		out = append(out, shared(v2SharedBodies[b.model]))
	default:
		out = append(
			out,
			map[string]any{"name": "body", "in": "body", "required": true, "schema": map[string]any{"$ref": v2.ref(b.model)}},
		)
	}
	for _, p := range parameters {
		if p.shared != "" {
			out = append(out, shared(p.shared))
			continue
		}
		m := map[string]any{"name": p.name, "in": p.in, "description": p.description, "type": p.kind, "uniqueItems": true}
		if p.in == "path" {
			m["required"] = true
		}
		out = append(out, m)
	}
	return out
}
