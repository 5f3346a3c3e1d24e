// Package request says what a request asks for, in the terms that the filters,
// authorization, audit and the verbs share.
package request

import (
	"context"
	"net/http"
	"strings"
)

// User is who sent the request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// InGroup says whether the user is a member of the group.
func (u *User) InGroup(name string) bool {
	for _, g := range u.Groups {
		if g == name {
			return true
		}
	}
	return false
}

// Well-known users and groups.
const (
	Anonymous            = "system:anonymous"
	GroupUnauthenticated = "system:unauthenticated"
	GroupAuthenticated   = "system:authenticated"
	GroupMasters         = "system:masters"
)

// Info is what a request's method and path say.
type Info struct {
	// Path is the URL path as sent.
	Path string
	// Verb is the API verb (get, list, watch, create, update, patch, delete,
	// deletecollection) of a resource request, the lower-case method otherwise.
	Verb string

	// Resource is empty for a request that is not about a resource.
	Resource    string
	Subresource string
	Group       string
	Version     string
	Namespace   string
	Name        string
	// AsksResource says that it is about a resource even if that has no name: a
	// review may ask so.
	AsksResource bool
	// Rest is what follows the subresource ("a/b" in pods/x/proxy/a/b).
	Rest string
}

// IsResource says whether the request is about a resource.
func (i *Info) IsResource() bool { return i.Resource != "" || i.AsksResource }

// specialVerbs are path segments that stand for a verb before the namespace, a
// deprecated form of watch (API conventions).
const watchSegment = "watch"

// namespaceSubresources are subresources of a namespace itself; any other
// segment there is a resource in the namespace.
var namespaceSubresources = map[string]bool{"status": true, "finalize": true}

// ParseInfo reads method, path and the few query parameters that change the verb.
func ParseInfo(r *http.Request) *Info {
	info := &Info{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}
	parts := split(r.URL.Path)
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		info.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		info.Group, info.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return info
	}
	switch r.Method {
	case http.MethodPost:
		info.Verb = "create"
	case http.MethodGet, http.MethodHead:
		info.Verb = "get"
	case http.MethodPut:
		info.Verb = "update"
	case http.MethodPatch:
		info.Verb = "patch"
	case http.MethodDelete:
		info.Verb = "delete"
	default:
		info.Verb = ""
	}
	watchPath := false
	if parts[0] == watchSegment {
		if len(parts) == 1 {
			info.Verb = watchSegment
			return info
		}
		watchPath, parts = true, parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) >= 2 {
		info.Namespace = parts[1]
		if len(parts) > 2 && !namespaceSubresources[parts[2]] {
			parts = parts[2:]
		} else if len(parts) > 3 && namespaceSubresources[parts[2]] {
			// /namespaces/x/status/y: keep it a namespace request, it will not be found.
			info.Rest = strings.Join(parts[3:], "/")
		}
	}
	info.Resource = parts[0]
	if len(parts) > 1 {
		info.Name = parts[1]
	}
	if len(parts) > 2 {
		info.Subresource = parts[2]
	}
	if len(parts) > 3 {
		info.Rest = strings.Join(parts[3:], "/")
	}
	collection := info.Name == ""
	switch {
	case watchPath:
		info.Verb = "watch"
	case collection && info.Verb == "get":
		info.Verb = "list"
		if wantsWatch(r) {
			info.Verb = "watch"
		}
	case collection && info.Verb == "delete":
		info.Verb = "deletecollection"
	}
	return info
}

func wantsWatch(r *http.Request) bool {
	if !strings.Contains(r.URL.RawQuery, "watch") {
		return false
	}
	values, ok := r.URL.Query()["watch"]
	if !ok || len(values) == 0 {
		return false
	}
	switch strings.ToLower(values[0]) {
	case "false", "0":
		return false
	}
	return true
}

func split(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

type contextKey int

const (
	userKey contextKey = iota
	infoKey
	warningsKey
)

// WithUser returns ctx with the request's user.
func WithUser(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, userKey, u)
}

// UserFrom returns the request's user, nil before authentication.
func UserFrom(ctx context.Context) *User {
	u, _ := ctx.Value(userKey).(*User)
	return u
}

// WithInfo returns ctx with what the request asks for.
func WithInfo(ctx context.Context, i *Info) context.Context {
	return context.WithValue(ctx, infoKey, i)
}

// InfoFrom returns what the request asks for; it is there in every handler
// behind the chain.
func InfoFrom(ctx context.Context) *Info {
	i, _ := ctx.Value(infoKey).(*Info)
	return i
}
