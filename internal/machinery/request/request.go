// Package request describes a request to the API in the terms that filters, authorization, audit and verbs share.
package request

import (
	"context"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// User is who sent the request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// UserInfo returns the user in the form that reviews and audit events contain.
func (u *User) UserInfo() authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	if len(u.Extra) > 0 {
		info.Extra = ConvertExtra[authenticationv1.ExtraValue](u.Extra)
	}
	return info
}

// ConvertExtra returns the extra fields of a user with values of another type; nil for nil.
func ConvertExtra[To, From ~[]string](extra map[string]From) map[string]To {
	if extra == nil {
		return nil
	}
	out := make(map[string]To, len(extra))
	for key, values := range extra {
		out[key] = To(values)
	}
	return out
}

// InGroup reports whether the user is a member of the group.
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
	// Server is the user name of the server itself, for requests that it makes.
	Server               = "system:apiserver"
	Anonymous            = "system:anonymous"
	GroupUnauthenticated = "system:unauthenticated"
	GroupAuthenticated   = "system:authenticated"
	GroupMasters         = "system:masters"
)

// Info describes a request by its method and path.
type Info struct {
	// Path is the URL path as sent.
	Path string
	// Verb is the API verb (get, list, watch, create, update, patch, delete,
	// deletecollection) of a resource request, the lower-case method otherwise.
	Verb string

	// Resource is empty if the request is not about a resource, or if the path has an
	// empty name where the resource should be; see AsksResource.
	Resource    string
	Subresource string
	Group       string
	Version     string
	Namespace   string
	Name        string
	// AsksResource reports whether the request is about a resource even if Resource is empty, as in some reviews and in
	// the path "/api/v1//x".
	AsksResource bool
	// VerbInPath reports whether the path begins with the verb, not with the resource.
	VerbInPath bool
	// InNamespace reports whether the path has a namespace before the resource: true for /api/v1/namespaces/a/pods,
	// false for /api/v1/namespaces/a, the path of the namespace itself.
	InNamespace bool
	// Rest is the part of the path after the subresource ("a/b" in pods/x/proxy/a/b).
	Rest string

	// AuditID and UserAgent are taken from the headers. Impersonator is the name of the authenticated user if the
	// request impersonates another user, who is the result of UserFrom.
	AuditID, UserAgent, Impersonator string

	// Tracker collects data for the metrics of the request. It is nil for requests that are not counted, such as those
	// that the server sends to itself.
	Tracker *Tracker
	// Warnings collects the warnings for the client; see Warn. It is nil where Tracker is nil.
	Warnings *Warnings
	// Response is set by the filter that limits the requests in flight; see ResponseFrom. It is nil where Tracker
	// is nil.
	Response Response
	// Body is the body, if it was read before the request is handled; otherwise nil.
	Body *Body
}

// IsResource reports whether the request is about a resource.
func (i *Info) IsResource() bool { return i.Resource != "" || i.AsksResource }

// BelowVersion reports whether the path has more segments after the version of an API group.
// If it has none, it is a path of discovery.
func (i *Info) BelowVersion() bool { return i.AsksResource || i.VerbInPath }

// Undetermined reports whether the path contains a verb but no resource. Such a request cannot be authorized.
func (i *Info) Undetermined() bool { return i.VerbInPath && !i.AsksResource }

// Path segments that are a verb before the namespace: deprecated forms of watch (API conventions) and of proxying. The
// latter is authorized but not served.
const (
	watchSegment = "watch"
	proxySegment = "proxy"
)

// namespaceSubresources are subresources of a namespace itself; any other
// segment there is a resource in the namespace.
var namespaceSubresources = map[string]bool{"status": true, "finalize": true}

// ParseInfo reads method, path and the few query parameters that change the verb.
func ParseInfo(r *http.Request) *Info {
	info := &Info{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}
	parts := Segments(r.URL.Path)
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		info.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		info.Group, info.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return info
	}
	info.AsksResource = true
	info.Verb = verbOf(r.Method)
	if parts[0] == watchSegment || parts[0] == proxySegment {
		info.Verb, info.VerbInPath, parts = parts[0], true, parts[1:]
		if len(parts) == 0 {
			info.AsksResource = false
			return info
		}
	}
	if parts[0] == "namespaces" && len(parts) >= 2 {
		info.Namespace = parts[1]
		if len(parts) > 2 && !namespaceSubresources[parts[2]] && !asksOfNamespace(r, info, parts) {
			parts, info.InNamespace = parts[2:], true
		}
	}
	info.Resource = parts[0]
	if len(parts) > 1 {
		info.Name = parts[1]
	}
	if len(parts) > 2 && info.Verb != proxySegment {
		info.Subresource = parts[2]
		info.Rest = strings.Join(parts[3:], "/")
	}
	if info.Name == "" {
		switch {
		case info.Verb == "get" && wantsWatch(r):
			info.Verb = "watch"
		case info.Verb == "get":
			info.Verb = "list"
		case info.Verb == "delete":
			info.Verb = "deletecollection"
		}
	}
	return info
}

// asksOfNamespace reports whether a request is for a hidden subresource of a namespace, such as
// /api/v1/namespaces/a/history. The core group has no resources of these names; other groups may have them.
func asksOfNamespace(r *http.Request, info *Info, parts []string) bool {
	return r.Method == http.MethodGet && info.Group == "" && !info.VerbInPath && len(parts) == 3 && FindHidden(parts[2]) != nil
}

// verbOf returns the API verb of a method for a named object, for example get and not list for
// GET. It returns "" for methods that resources do not have.
func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

func wantsWatch(r *http.Request) bool {
	if !mayHave(r.URL.RawQuery, "watch") {
		return false
	}
	values := r.URL.Query()["watch"]
	if len(values) == 0 {
		return false
	}
	value := strings.ToLower(values[0])
	return value != "false" && value != "0"
}

// mayHave reports whether a query that is not parsed may contain a parameter. Names may be percent-encoded.
func mayHave(rawQuery, name string) bool {
	return strings.Contains(rawQuery, name) || strings.Contains(rawQuery, "%")
}

// Segments returns the parts of a path between slashes, without slashes at its ends. The path / has none. The part
// number maxParts contains the rest of the path.
func Segments(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.SplitN(path, "/", maxParts)
}

// maxParts is one more than the segments of a path that have a meaning of their own:
// apis, group, version, verb, namespaces, namespace, resource, name, subresource. What
// comes after them stays in one piece, however long it is.
const maxParts = 10

type contextKey int

const (
	userKey contextKey = iota
	infoKey
	reasonKey
	ownKey
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

// WithReason returns ctx with the reason why a part of the server writes, for the history of objects.
func WithReason(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, reasonKey, reason)
}

// ReasonFrom returns the reason of the writes in ctx, "" if there is none.
func ReasonFrom(ctx context.Context) string {
	reason, _ := ctx.Value(reasonKey).(string)
	return reason
}

// own is the verb and subresource of a change that a part of the server makes without a request.
type own struct{ verb, subresource string }

// WithVerb returns ctx with the verb and the subresource of a change that a part of the server makes itself, as a
// request for the change would have them. They are for the history of objects.
func WithVerb(ctx context.Context, verb, subresource string) context.Context {
	return context.WithValue(ctx, ownKey, own{verb, subresource})
}

// VerbFrom returns the verb and the subresource of the request in ctx, or those of WithVerb if there is no
// request. They are "" if there are none.
func VerbFrom(ctx context.Context) (verb, subresource string) {
	if i := InfoFrom(ctx); i != nil {
		return i.Verb, i.Subresource
	}
	o, _ := ctx.Value(ownKey).(own)
	return o.verb, o.subresource
}

// WithInfo returns ctx with the Info of the request.
func WithInfo(ctx context.Context, i *Info) context.Context {
	return context.WithValue(ctx, infoKey, i)
}

// InfoFrom returns the Info of the request. Every handler behind the filter chain has one.
func InfoFrom(ctx context.Context) *Info {
	i, _ := ctx.Value(infoKey).(*Info)
	return i
}
