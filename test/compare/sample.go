package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// bodies are the requests of the section sample, which are made with the answers of kube-apiserver and sent to both servers.
type bodies struct {
	generator *generator
	bases     []*base
	stored    map[string]any // what kube-apiserver has stored, for the section stored
}

// A base is an object of a kind to which fields are added one by one.
type base struct {
	kind     kind
	schema   map[string]any
	object   any
	accepted bool // by kube-apiserver
	refusal  string
}

// objectName is the name of all objects that are made.
const objectName = "compare-sample"

// prepareBodies makes the objects of all kinds, once.
func (c *comparison) prepareBodies(ctx context.Context) error {
	if c.bodies != nil {
		return nil
	}
	kinds, err := c.commonKinds(ctx)
	if err != nil {
		return err
	}
	for _, s := range c.servers() { // pods need an account, which a controller would make
		r := request{method: http.MethodPost, path: "/api/v1/namespaces/default/serviceaccounts",
			body: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`}
		if _, err := s.do(ctx, r); err != nil {
			return err
		}
	}
	documents, err := c.reference.openAPIv3(ctx)
	if err != nil {
		return err
	}
	b := &bodies{generator: newGenerator(documents)}
	for _, k := range kinds {
		if k.has("create") {
			if schema := b.generator.schemaOf(k); schema != nil {
				b.bases = append(b.bases, &base{kind: k, schema: schema, object: b.generator.start(k, schema)})
			}
		}
	}
	var mu sync.Mutex // guards failed
	var failed error
	inParallel(len(b.bases), func(i int) {
		if err := b.generator.repair(ctx, c.reference, b.bases[i]); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		}
	})
	c.bodies = b
	for _, base := range b.bases {
		if !base.accepted {
			c.notes = append(c.notes, base.kind.name()+": no object was made that is accepted: "+shorten(base.refusal))
		}
	}
	return failed
}

// start returns the first object of a kind that is tried: with what the schema requires.
func (g *generator) start(k kind, schema map[string]any) any {
	object, _ := g.value(schema).(map[string]any)
	if content, ok := prepared[groupName(k.group)+" "+k.kind]; ok {
		if err := decode([]byte(content), &object); err != nil {
			panic("the beginning of " + k.kind + ": " + err.Error())
		}
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	if metadata["name"] == nil {
		metadata["name"] = objectName
	}
	version := k.version
	if k.group != "" {
		version = k.group + "/" + k.version
	}
	object["metadata"], object["apiVersion"], object["kind"] = metadata, version, k.kind
	if k.namespaced {
		metadata["namespace"] = "default"
	}
	return object
}

// dryRun returns the request that tries an object.
func dryRun(k kind, object any) request {
	return request{method: http.MethodPost, path: k.path("default") + "?dryRun=All&fieldValidation=Warn", body: compact(object)}
}

// repair tries an object and sets what the answer says is missing, until it is accepted or nothing more can be done.
func (g *generator) repair(ctx context.Context, s *server, b *base) error {
	const rounds = 10
	for range rounds {
		r, err := s.do(ctx, dryRun(b.kind, b.object))
		if err != nil {
			return err
		}
		if b.accepted = r.status < http.StatusMultipleChoices; b.accepted {
			return nil
		}
		b.refusal = fmt.Sprintf("%d %s", r.status, text(dig(asJSON(r.body), "message")))
		changed := false
		for _, cause := range items(dig(asJSON(r.body), "details", "causes")) {
			changed = g.repairCause(b, cause) || changed
		}
		if !changed {
			return nil
		}
	}
	return nil
}

var supported = regexp.MustCompile(`supported values: "([^"]*)"`)

// repairCause sets the field of a cause. It reports whether it changed something.
func (g *generator) repairCause(b *base, cause map[string]any) bool {
	path, ok := parsePath(text(cause["field"]))
	if !ok {
		return false
	}
	var value any
	switch text(cause["reason"]) {
	case "FieldValueRequired":
		below := g.schemaAt(b.schema, path)
		if below == nil {
			return false
		}
		value = g.value(below)
	case "FieldValueNotSupported":
		m := supported.FindStringSubmatch(text(cause["message"]))
		if m == nil {
			return false
		}
		value = m[1]
	default:
		return false
	}
	before := compact(b.object)
	b.object, _ = g.set(b.object, b.schema, path, value)
	return compact(b.object) != before
}

// requiredFields is the name of the object without a field more. It is before all others.
const requiredFields = "(required fields)"

// collectSample creates, as dry runs, the object of each kind, and the same with one field more, for each field. It returns
// status, message, causes, warnings and the object of the answer.
func collectSample(ctx context.Context, c *comparison, s *server) (map[string]any, error) {
	if err := c.prepareBodies(ctx); err != nil {
		return nil, err
	}
	type try struct {
		kind, field string
		request     request
	}
	var tries []try
	for _, b := range c.bodies.bases {
		tries = append(tries, try{b.kind.name(), requiredFields, dryRun(b.kind, b.object)})
		for _, f := range c.bodies.generator.variants(b, c.fields) {
			tries = append(tries, try{b.kind.name(), f.name, dryRun(b.kind, f.object)})
		}
	}
	answers := make([]map[string]any, len(tries))
	var mu sync.Mutex // guards failed
	var failed error
	inParallel(len(tries), func(i int) {
		r, err := s.do(ctx, tries[i].request)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, fmt.Errorf("%s %s: %w", tries[i].kind, tries[i].field, err))
			return
		}
		answers[i] = s.answer(r)
	})
	if failed != nil {
		return nil, failed
	}
	out := map[string]any{}
	for i, t := range tries {
		of, _ := out[t.kind].(map[string]any)
		if of == nil {
			of = map[string]any{}
			out[t.kind] = of
		}
		of[t.field] = answers[i]
	}
	return out, nil
}

// summarizeSample keeps one of the differences that are the same for several fields of a kind: the one of the first field, with
// the number of the other fields.
func summarizeSample(all []difference) (out []difference) {
	all = withoutConsequences(all)
	type group struct{ kind, place, text string }
	first := map[group]int{}
	others := map[int]int{}
	for _, d := range all {
		parts := strings.SplitN(d.path, "/", 3)
		if len(parts) < 3 {
			out = append(out, d)
			continue
		}
		g := group{parts[0], parts[2], d.text}
		if i, ok := first[g]; ok {
			others[i]++
			continue
		}
		first[g] = len(out)
		out = append(out, d)
	}
	for i, n := range others {
		out[i].text += fmt.Sprintf(" (and with %d other fields)", n)
	}
	return out
}

// withoutConsequences leaves out what follows from another difference of the same answer: of different codes the objects, of
// different causes the message.
func withoutConsequences(all []difference) []difference {
	has := map[string]bool{} // KIND/FIELD/PART
	part := func(d difference) (answer, name string) {
		parts := append(strings.SplitN(d.path, "/", 4), "", "", "")
		return parts[0] + "/" + parts[1], parts[2]
	}
	for _, d := range all {
		answer, name := part(d)
		has[answer+"/"+name] = true
	}
	return slices.DeleteFunc(all, func(d difference) bool {
		answer, name := part(d)
		switch name {
		case "object", "reason", "warnings", "body":
			return has[answer+"/code"]
		case "message":
			return has[answer+"/causes"]
		}
		return false
	})
}

// A variant is a base with one field more.
type variant struct {
	name   string // FIELD=VALUE
	object any
}

// variants returns the object of a base with each of its fields; if there are more than most, a choice that is the same in
// each run. Fields that the base has are not set.
func (g *generator) variants(b *base, most int) (out []variant) {
	const depth = 6 // spec.template.spec.containers[0].ports[0].hostPort
	for _, f := range g.fields(b.schema, depth) {
		name := f.path.String()
		if slices.Contains([]string{"apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace"}, name) {
			continue
		}
		var object any
		if decode([]byte(compact(b.object)), &object) != nil {
			return nil // it was encoded here
		}
		object, ok := g.set(object, b.schema, f.path, f.value)
		if ok && compact(object) != compact(b.object) {
			out = append(out, variant{name + "=" + shorten(compact(f.value)), object})
		}
	}
	if most > 0 && len(out) > most {
		hash := func(v variant) string { s := sha256.Sum256([]byte(v.name)); return string(s[:]) }
		slices.SortFunc(out, func(a, b variant) int { return cmp.Compare(hash(a), hash(b)) })
		out = out[:most]
	}
	return out
}

// answer returns what is compared of a response: without what two servers cannot have in common, and with the causes as a set.
func (s *server) answer(r response) map[string]any {
	out := map[string]any{"code": r.status, "warnings": s.normalizedText(strings.Join(r.warnings, "; "))}
	body, ok := asJSON(r.body).(map[string]any)
	if !ok {
		out["body"] = string(r.body)
		return out
	}
	s.normalize(body)
	if text(body["kind"]) != "Status" {
		out["object"] = body
		return out
	}
	causes := map[string]any{}
	for _, cause := range items(dig(body, "details", "causes")) {
		causes[text(cause["field"])+": "+text(cause["reason"])+": "+text(cause["message"])] = true
	}
	out["causes"], out["reason"] = causes, body["reason"]
	if len(causes) < 2 { // of several, the order is arbitrary
		out["message"] = body["message"]
	}
	return out
}
