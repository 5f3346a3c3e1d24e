package main

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"
)

const (
	rbacGroup = "rbac.authorization.k8s.io"
	flowGroup = "flowcontrol.apiserver.k8s.io"
)

// collectRoles returns the default roles and bindings.
func collectRoles(ctx context.Context, c *comparison, s *server) (map[string]any, error) {
	return s.objects(ctx, c, func(k kind) bool { return k.group == rbacGroup })
}

// collectFlowControl returns the default FlowSchemas and PriorityLevelConfigurations.
func collectFlowControl(ctx context.Context, c *comparison, s *server) (map[string]any, error) {
	return s.objects(ctx, c, func(k kind) bool { return k.group == flowGroup })
}

// collectObjects returns all other objects that a new server has.
func collectObjects(ctx context.Context, c *comparison, s *server) (map[string]any, error) {
	return s.objects(ctx, c, func(k kind) bool {
		return k.group != rbacGroup && k.group != flowGroup && k.resource != "events" && k.resource != "componentstatuses"
	})
}

// objects lists the objects of some kinds until two lists are equal, because controllers may still be at work. If they do
// not become equal soon the last list is returned.
func (s *server) objects(ctx context.Context, c *comparison, of func(kind) bool) (map[string]any, error) {
	const attempts = 20
	kinds, err := c.commonKinds(ctx)
	if err != nil {
		return nil, err
	}
	last := ""
	for n := 1; ; n++ {
		out := map[string]any{}
		for _, k := range kinds {
			if !of(k) || !k.has("list") {
				continue
			}
			list, err := s.get(ctx, k.path(""), "")
			if err != nil {
				return nil, err
			}
			objects := map[string]any{}
			for _, o := range items(list["items"]) {
				s.normalize(o)
				objects[strings.Trim(text(dig(o, "metadata", "namespace"))+"/"+text(dig(o, "metadata", "name")), "/")] = o
			}
			out[k.name()] = objects
		}
		now := compact(out)
		if now == last || n == attempts {
			return out, nil
		}
		last = now
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(c.pause):
		}
	}
}

// These are values that two servers cannot have in common.
var (
	uidPattern      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timePattern     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	identityPattern = regexp.MustCompile(`apiserver-[a-z0-9]{10,}`)
	addressPattern  = regexp.MustCompile(`\b10\.0\.\d{1,3}\.\d{1,3}\b`)
	nodePortPattern = regexp.MustCompile(`\b3[012]\d{3}\b`)
	tokenPattern    = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}\b`)
)

// normalize replaces, in place, the values of an object that two servers cannot have in common.
func (s *server) normalize(object map[string]any) {
	if m, ok := object["metadata"].(map[string]any); ok {
		delete(m, "uid")
		delete(m, "resourceVersion")
		delete(m, "creationTimestamp")
		prefix, name := text(m["generateName"]), text(m["name"])
		if prefix != "" && strings.HasPrefix(name, prefix) {
			m["name"] = prefix + "<generated>"
		}
	}
	for k, v := range object {
		object[k] = s.normalized(v)
	}
}

func (s *server) normalized(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			x[k] = s.normalized(e)
		}
	case []any:
		for i, e := range x {
			x[i] = s.normalized(e)
		}
	case string:
		return s.normalizedText(x)
	case json.Number:
		if p := s.port(); p != "" && x.String() == p {
			return "<port>"
		}
		if nodePortPattern.MatchString(x.String()) {
			return "<nodeport>"
		}
	}
	return v
}

func (s *server) normalizedText(x string) string {
	if p := s.port(); p != "" {
		x = strings.ReplaceAll(x, ":"+p, ":<port>")
	}
	x = uidPattern.ReplaceAllString(x, "<uid>")
	x = timePattern.ReplaceAllString(x, "<time>")
	x = identityPattern.ReplaceAllString(x, "apiserver-<identity>")
	x = tokenPattern.ReplaceAllString(x, "kube-api-access-<generated>")
	x = nodePortPattern.ReplaceAllString(x, "<nodeport>")
	return addressPattern.ReplaceAllString(x, "<address>")
}

// collectStored returns the version in which each kind is stored. For a server with etcd these are the bytes there; for
// others, the version whose hash the discovery documents have. Objects of as many kinds as possible are created before.
func collectStored(ctx context.Context, c *comparison, s *server) (map[string]any, error) {
	if c.reference.etcd == "" {
		return nil, errSkipped
	}
	if err := c.prepareBodies(ctx); err != nil {
		return nil, err
	}
	if s.etcd == "" {
		return s.storedByHash(ctx, c)
	}
	for _, b := range c.bodies.bases {
		if b.accepted && b.kind.has("get") {
			r := request{method: http.MethodPost, path: b.kind.path("default"), body: compact(b.object)}
			if _, err := s.do(ctx, r); err != nil {
				return nil, err
			}
		}
	}
	out, err := storedInEtcd(ctx, s.etcd)
	if err != nil {
		return nil, err
	}
	c.bodies.stored = out
	return out, nil
}
