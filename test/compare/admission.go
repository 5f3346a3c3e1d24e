package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The section admission compares what admission sees and what its answers do. Each case is one write: its answer, what every webhook was
// asked in which order, what a policy saw, and the object afterwards. The cases are made from tables (admissioncases.go): kinds, verbs,
// subresources, options, odd answers of webhooks. kube-apiserver answers all of them twice; what differs there is not compared.

const widgetDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.adm.example.org"},"spec":{
	"group":"adm.example.org","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[VERSION1,VERSION2]}}`

const widgetVersion = `{"name":"%s","served":true,"storage":%t,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
	"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer","default":1},
	"replicas":{"type":"integer"},"note":{"type":"string"}}},"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}`

// shown is the message of a policy that shows what it sees of a write.
const shown = `'policy sees ' + request.operation + ' ' + request.kind.group + '/' + request.kind.version + ' ' + request.kind.kind + ' ' + request.resource.resource + ' ' +
	request.requestKind.version + ' ' + request.subResource + ' ' + request.name + ' ' + request.userInfo.username + ' dryRun ' + string(request.dryRun) +
	(has(request.options) && request.options != null ? ' ' + request.options.kind : '') +
	(object == null ? ' no object' : ' object ' + object.kind + (has(object.metadata.namespace) ? ' in ' + object.metadata.namespace : '') +
	(has(object.metadata.managedFields) ? ' managers ' + string(object.metadata.managedFields.size()) : '') + (has(object.metadata.uid) ? ' uid' : '')) +
	(oldObject == null ? ' no oldObject' : ' oldObject ' + oldObject.kind + ' ' + oldObject.apiVersion + (has(oldObject.metadata.managedFields) ? ' managers ' + string(oldObject.metadata.managedFields.size()) : ''))`

// prepareAdmission creates namespaces, the definition, webhooks and policies, and waits until they have an effect.
func prepareAdmission(ctx context.Context, s *server, hooks *recorder) error {
	version := func(name string, storage bool) string { return fmt.Sprintf(widgetVersion, name, storage) }
	definition := strings.NewReplacer("VERSION1", version("v1", true), "VERSION2", version("v2", false)).Replace(widgetDefinition)
	const admissionPath = "/apis/admissionregistration.k8s.io/v1/"
	made := []request{{method: http.MethodPost, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: definition}}
	for name, labels := range map[string]string{plainNamespace: `{}`, lenientNamespace: `{"hooks":"ignore"}`, policiesNamespace: `{"policies":"on"}`} {
		made = append(made, request{method: http.MethodPost, path: "/api/v1/namespaces", body: `{"metadata":{"name":"` + name + `","labels":` + labels + `}}`},
			request{method: http.MethodPost, path: "/api/v1/namespaces/" + name + "/serviceaccounts", body: `{"metadata":{"name":"default"}}`})
	}
	rules := func(versions, scope string) string {
		return `"rules":[{"operations":["*"],"apiGroups":["","apps","coordination.k8s.io","adm.example.org","apiextensions.k8s.io"],"apiVersions":[` + versions + `],"scope":"` + scope +
			`","resources":["configmaps","pods","pods/*","bindings","deployments","deployments/*","leases","namespaces","namespaces/*","widgets","widgets/*","customresourcedefinitions",` +
			`"customresourcedefinitions/*","serviceaccounts/token"]}]`
	}
	const except = `,"namespaceSelector":{"matchExpressions":[{"key":"hooks","operator":"NotIn","values":["ignore"]},` +
		`{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system","kube-public","kube-node-lease","default"]}]}`
	const only = `,"namespaceSelector":{"matchLabels":{"hooks":"ignore"}},"failurePolicy":"Ignore"`
	const again = `,"reinvocationPolicy":"IfNeeded"`
	mutating, validating := "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
	for _, c := range []struct {
		kind, name string
		hooks      []hook
	}{
		{mutating, "adm-a", []hook{{"/first", rules(`"v1"`, "*") + except + again}}},
		{mutating, "adm-b", []hook{{"/second", rules(`"*"`, "*") + except}, {"/third", rules(`"v2"`, "*") + except + again}}},
		{mutating, "adm-i", []hook{{"/first", rules(`"v1"`, "Namespaced") + only + again}, {"/second", rules(`"*"`, "Namespaced") + only}}},
		{validating, "adm-a", []hook{{"/judge", rules(`"v1"`, "*") + except}, {"/judge-exact", rules(`"v1"`, "*") + except + `,"matchPolicy":"Exact"`}}},
		{validating, "adm-i", []hook{{"/judge", rules(`"*"`, "Namespaced") + only}}},
	} {
		made = append(made, request{method: http.MethodPost, path: admissionPath + strings.ToLower(c.kind) + "s", body: hooks.configuration(c.kind, c.name, c.hooks...)})
	}
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%s","metadata":{"name":"adm"},"spec":{"matchConstraints":{"resourceRules":[{"operations":["*"],` +
		`"apiGroups":["","apps","coordination.k8s.io","adm.example.org"],"apiVersions":["v1"],"scope":"Namespaced","resources":["configmaps","pods","pods/*","bindings","deployments",` +
		`"deployments/*","leases","widgets","widgets/*","serviceaccounts/token"]}],"namespaceSelector":{"matchLabels":{"policies":"on"}}},%s}}`
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%s","metadata":{"name":"adm"},"spec":{"policyName":"adm"%s}}`
	annotation := `Object{metadata: Object.metadata{annotations: {'policy': request.operation + (request.options == null ? '' : ' ' + request.options.kind) + (has(object.metadata.namespace) ? ' ' + object.metadata.namespace : '')}}}`
	for _, p := range [][2]string{
		{"validatingadmissionpolicies", fmt.Sprintf(policy, "ValidatingAdmissionPolicy", `"validations":[{"expression":"false","messageExpression":`+escaped(shown)+`}]`)},
		{"validatingadmissionpolicybindings", fmt.Sprintf(binding, "ValidatingAdmissionPolicyBinding", `,"validationActions":["Warn"]`)},
		{"mutatingadmissionpolicies", fmt.Sprintf(policy, "MutatingAdmissionPolicy", `"failurePolicy":"Ignore","reinvocationPolicy":"IfNeeded","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":`+
			escaped(annotation)+`}}]`)},
		{"mutatingadmissionpolicybindings", fmt.Sprintf(binding, "MutatingAdmissionPolicyBinding", "")},
	} {
		made = append(made, request{method: http.MethodPost, path: admissionPath + p[0], body: p[1]})
	}
	for _, r := range made {
		answer, err := s.do(ctx, r)
		if err != nil {
			return err
		}
		if answer.status != http.StatusCreated {
			return fmt.Errorf("%s: POST %s: %d %.500s", s.name, r.path, answer.status, answer.body)
		}
	}
	return awaitAdmission(ctx, s, hooks)
}

// awaitAdmission waits until all webhooks are called and both policies have an effect.
func awaitAdmission(ctx context.Context, s *server, hooks *recorder) error {
	const limit, pause = time.Minute, 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	kinds := admittedKinds()
	for {
		effects := map[string]bool{}
		for _, namespace := range []string{plainNamespace, lenientNamespace, policiesNamespace} {
			for _, k := range kinds {
				if k.name != "configmap" && !k.custom {
					continue
				}
				hooks.begin(nil)
				answer, err := s.do(ctx, request{method: http.MethodPost, path: strings.ReplaceAll(k.collection, "NS", namespace) + "?dryRun=All", body: strings.ReplaceAll(k.object(), "NAME", "waits")})
				if err != nil {
					return err
				}
				for _, c := range hooks.calls() {
					effects[namespace+c.path] = true
				}
				effects["warns"] = effects["warns"] || len(answer.warnings) > 0
				effects["mutates"] = effects["mutates"] || bytes.Contains(answer.body, []byte(`"policy":"CREATE`))
			}
		}
		if len(effects) == 5+3+5+2 && effects["warns"] && effects["mutates"] {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: webhooks and policies have no effect after a minute: %v", s.name, slices.Sorted(maps.Keys(effects)))
		case <-time.After(pause):
		}
	}
}

// collectAdmission sends all cases to a server.
func collectAdmission(ctx context.Context, c *comparison, s *server) (map[string]any, error) {
	if s.name == reference && c.answers != "" {
		if saved, err := os.ReadFile(c.answers); err == nil {
			return c.restoreAnswers(saved)
		}
	}
	hooks := newRecorder()
	defer hooks.Close()
	if err := prepareAdmission(ctx, s, hooks); err != nil {
		return nil, err
	}
	first, err := c.runAdmission(ctx, s, hooks, 0)
	if err != nil || s.name != reference {
		return first, err
	}
	second, err := c.runAdmission(ctx, s, hooks, 1)
	if err != nil {
		return nil, err
	}
	c.findUnstable(first, second)
	if c.answers != "" {
		return first, c.saveAnswers(first)
	}
	return first, nil
}

// findUnstable keeps the lines in which two runs of kube-apiserver differ.
func (c *comparison) findUnstable(first, second map[string]any) {
	c.unstable = map[string]bool{}
	for _, d := range compareTrees(first, second) {
		c.unstable[lineOf(d)] = true
		c.notes = append(c.notes, "kube-apiserver answers differently: "+d.String())
	}
}

// savedAnswers is what a file of --answers has.
type savedAnswers struct {
	Answers  map[string]any
	Unstable map[string]bool
}

func (c *comparison) saveAnswers(answers map[string]any) error {
	data, err := json.Marshal(savedAnswers{answers, c.unstable})
	if err != nil {
		return err
	}
	const mode = 0o600
	return os.WriteFile(c.answers, data, mode)
}

func (c *comparison) restoreAnswers(data []byte) (map[string]any, error) {
	var saved savedAnswers
	err := decode(data, &saved)
	c.unstable = saved.Unstable
	return saved.Answers, err
}

// lineOf returns the case and the aspect of it that a difference is in.
func lineOf(d difference) string {
	parts := strings.SplitN(d.path, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// withoutUnstable removes the differences in what kube-apiserver answers differently itself.
func (c *comparison) withoutUnstable(in []difference) []difference {
	return slices.DeleteFunc(in, func(d difference) bool { return c.unstable[lineOf(d)] })
}

// runAdmission sends all cases, with names of a round.
func (c *comparison) runAdmission(ctx context.Context, s *server, hooks *recorder, round int) (map[string]any, error) {
	out := map[string]any{}
	c.lines = 0
	for i, k := range admissionCases() {
		if c.cases != nil && !c.cases.MatchString(k.name) {
			continue
		}
		aspects, err := s.admissionCase(ctx, hooks, &k, fmt.Sprintf("o%d-%d", round, i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		if _, twice := out[k.name]; twice {
			return nil, errors.New(k.name + ": two cases have this name")
		}
		out[k.name] = aspects
		c.lines += len(aspects)
	}
	c.requests = len(out)
	return out, nil
}

// admissionCase carries out one case, and returns its aspects.
func (s *server) admissionCase(ctx context.Context, hooks *recorder, k *admissionCase, name string) (map[string]any, error) {
	fill := strings.NewReplacer("NAME", name, "NS", k.namespace)
	prepared := ""
	hooks.begin(nil)
	for _, r := range k.prepare {
		answer, err := s.do(ctx, r.filled(fill))
		if err != nil {
			return nil, err
		}
		prepared += fmt.Sprint(answer.status, " ")
	}
	look := request{method: http.MethodGet, path: fill.Replace(k.look)}
	write := k.write.filled(fill)
	if strings.Contains(write.body, `"RV"`) || strings.Contains(write.body, "OBJECTUID") {
		now, err := s.do(ctx, look)
		if err != nil {
			return nil, err
		}
		var obj map[string]any
		if err := decode(now.body, &obj); err != nil {
			return nil, err
		}
		write.body = strings.NewReplacer(`"RV"`, escaped(text(dig(obj, "metadata", "resourceVersion"))), "OBJECTUID", text(dig(obj, "metadata", "uid"))).Replace(write.body)
	}
	hooks.begin(k.replies)
	answer, err := s.do(ctx, write)
	if err != nil {
		return nil, err
	}
	calls := hooks.calls()
	hooks.begin(nil)
	after, err := s.do(ctx, look)
	if err != nil {
		return nil, err
	}
	out := map[string]any{
		"prepared": prepared, "status": fmt.Sprint(answer.status), "warnings": normalized(answer.headers),
		"body": normalizedJSON(answer.body), "object": normalizedJSON(after.body),
	}
	var order []string
	for i, c := range calls {
		delete(c.request, "uid")
		order = append(order, c.path)
		out[fmt.Sprintf("call %d", i)] = normalized(c.request)
	}
	out["calls"] = strings.Join(order, " ")
	return out, nil
}

func (r request) filled(fill *strings.Replacer) request {
	r.path, r.body = fill.Replace(r.path), fill.Replace(r.body)
	return r
}

// normalizedJSON returns a body without what two servers cannot have in common.
func normalizedJSON(body []byte) any {
	var v any
	if err := decode(body, &v); err != nil {
		return normalized(string(body))
	}
	return normalized(v)
}

func normalized(v any) any { return (&normalizer{}).value("", v) }

// A normalizer replaces uids and resourceVersions by their numbers in the order in which they occur, and times by a word.
type normalizer struct{ uids, versions []string }

var (
	anyUID    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyTime   = regexp.MustCompile(`20[2-9][1-9]-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`)
	anyRandom = regexp.MustCompile(`(gen-|kube-api-access-)[a-z0-9]{5}\b`)
	anyHost   = regexp.MustCompile(`https://127\.0\.0\.1:[0-9]+`)
	anyName   = regexp.MustCompile(`\bo[0-9]-([0-9]+)`)
	anyToken  = regexp.MustCompile(`^ey[A-Za-z0-9_.-]{100,}$`)
)

func (n *normalizer) value(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out[n.text("", key)] = n.value(key, v[key])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = n.value("", v[i])
		}
		return out
	case []string:
		out := make([]any, len(v))
		for i := range v {
			out[i] = n.text("", v[i])
		}
		return out
	case string:
		return n.text(name, v)
	}
	return v
}

func (n *normalizer) text(name, s string) string {
	if name == "resourceVersion" && len(s) > 1 {
		return "version " + number(&n.versions, s)
	}
	s = anyUID.ReplaceAllStringFunc(s, func(uid string) string { return "uid " + number(&n.uids, uid) })
	s = anyTime.ReplaceAllString(s, "TIME")
	s = anyRandom.ReplaceAllString(s, "${1}RANDOM")
	s = anyHost.ReplaceAllString(s, "https://HOST")
	s = anyToken.ReplaceAllString(s, "TOKEN")
	return anyName.ReplaceAllString(s, "o-$1")
}

// number returns the number of a text among those that were seen.
func number(seen *[]string, s string) string {
	i := slices.Index(*seen, s)
	if i < 0 {
		i = len(*seen)
		*seen = append(*seen, s)
	}
	return fmt.Sprint(i)
}
