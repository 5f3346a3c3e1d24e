package impersonate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

const (
	accountPrefix = "system:serviceaccount:"
	accountsGroup = "system:serviceaccounts"
	nodePrefix    = "system:node:"
	nodesGroup    = "system:nodes"

	group   = "authentication.k8s.io"
	version = "v1"

	// nodeNameKey is the extra key that has the node to which a service account token is bound.
	nodeNameKey = "authentication.kubernetes.io/node-name"
	// associatedKeys is the extra key that replaces the sender's extra values in mode associated-node.
	associatedKeys = "authentication.kubernetes.io/associated-node-keys"

	// With at least wildcardFrom groups or extra values, the permission for "*" is tried first, instead of one permission for
	// each.
	wildcardFrom = 4

	legacyVerb = "impersonate"
)

// A mode is a way of impersonating, with verbs of its own. All modes but the legacy mode are
// constrained: the sender needs a permission to impersonate the user and, in addition, one to
// perform this request as such a user.
type mode struct {
	// name is "" for the legacy mode.
	name string
	// applies reports whether the mode is made for impersonating this user.
	applies func(requested, sender *request.User) bool
}

// modes are tried from top to bottom, the strictest first.
var modes = []mode{
	{"associated-node", func(requested, sender *request.User) bool {
		return hasOnlyName(requested) && boundToNode(sender, requested.Name)
	}},
	{"arbitrary-node", func(requested, _ *request.User) bool {
		_, ok := nodeFromUser(requested.Name)
		return ok && hasOnlyName(requested)
	}},
	{"serviceaccount", func(requested, _ *request.User) bool {
		_, _, ok := serviceAccountFromUser(requested.Name)
		return ok && hasOnlyName(requested)
	}},
	{"user-info", func(requested, _ *request.User) bool {
		_, node := nodeFromUser(requested.Name)
		_, _, account := serviceAccountFromUser(requested.Name)
		return !node && !account
	}},
	{"", func(_, _ *request.User) bool { return true }},
}

// label is the mode's name in metrics.
func (m *mode) label() string {
	if m.name == "" {
		return "legacy"
	}
	return m.name
}

// constraint returns the verb that is recorded in audit events, "" for the legacy mode.
func (m *mode) constraint() string {
	if m.name == "" {
		return ""
	}
	return m.verb()
}

// verb returns the verb of the permission to impersonate a user.
func (m *mode) verb() string {
	if m.name == "" {
		return legacyVerb
	}
	return legacyVerb + ":" + m.name
}

func (m *mode) isConstrained() bool { return m.name != "" }

// isAssociatedNode reports whether m is the mode in which the sender's token is bound to the
// node. The permission then is for "*", not for the name of the node.
func (m *mode) isAssociatedNode() bool { return m.name == "associated-node" }

// attempt checks the permissions of one request in one mode.
type attempt struct {
	*filter
	*mode
	ctx    context.Context
	sender *request.User
}

// try returns the impersonated user if the mode allows it, and an error if not. It returns nil
// and no error if the mode does not apply to the requested user.
func (f *filter) try(
	ctx context.Context, m *mode, requested *request.User, at authz.Attributes,
) (*request.User, error) {
	if !m.applies(requested, at.User) {
		return nil, nil
	}
	a := attempt{f, m, ctx, m.senderOf(at.User)}
	if m.isConstrained() {
		if err := a.authorizeAttributes(m.onBehalf(at.User, at)); err != nil {
			return nil, err
		}
	}
	user := *requested
	for _, step := range []func(requested, user *request.User) error{a.name, a.uid, a.groups, a.extra} {
		if err := step(requested, &user); err != nil {
			return nil, err
		}
	}
	return addAuthenticatedGroup(&user), nil
}

// senderOf returns the user whose permissions are asked for in the mode.
func (m *mode) senderOf(sender *request.User) *request.User {
	if !m.isAssociatedNode() {
		return sender
	}
	associated := *sender
	associated.Extra = map[string][]string{associatedKeys: slices.Sorted(maps.Keys(sender.Extra))}
	return &associated
}

// verbOn returns the verb of the permission to use verb in the name of another user.
func (m *mode) verbOn(verb string) string { return "impersonate-on:" + m.name + ":" + verb }

// onBehalf returns the question whether the sender may do something in the name of another user, in a constrained mode.
func (m *mode) onBehalf(sender *request.User, a authz.Attributes) authz.Attributes {
	info := *a.Info
	info.Verb = m.verbOn(info.Verb)
	return authz.Attributes{User: m.senderOf(sender), Info: &info, Selectors: a.Selectors}
}

// permission returns the request attributes of the permission to impersonate the named thing.
// In the legacy mode, users and groups belong to the core group.
func (a attempt) permission(resource, name string) request.Info {
	info := request.Info{Verb: a.verb(), Group: group, Version: version, Resource: resource, Name: name}
	if !a.isConstrained() && resource != "uids" && resource != "userextras" {
		info.Group = ""
	}
	return info
}

func (a attempt) name(requested, user *request.User) error {
	info := a.permission("users", requested.Name)
	if node, ok := nodeFromUser(requested.Name); ok && a.isConstrained() {
		info.Resource, info.Name = "nodes", node
		if a.isAssociatedNode() {
			info.Name = "*"
		}
		user.Groups = []string{nodesGroup}
	}
	if namespace, name, ok := serviceAccountFromUser(requested.Name); ok {
		info.Resource, info.Namespace, info.Name = "serviceaccounts", namespace, name
		if len(requested.Groups) == 0 {
			user.Groups = []string{accountsGroup, accountsGroup + ":" + namespace}
		}
	}
	return a.authorize(info)
}

func (a attempt) uid(requested, _ *request.User) error {
	if requested.UID == "" {
		return nil
	}
	return a.authorize(a.permission("uids", requested.UID))
}

func (a attempt) groups(requested, _ *request.User) error {
	if len(requested.Groups) == 0 {
		return nil
	}
	info := a.permission("groups", "")
	if a.isConstrained() {
		switch {
		case slices.Contains(requested.Groups, ""):
			return a.forbidden(info, "impersonating the empty string group is not allowed")
		case slices.Contains(requested.Groups, request.GroupMasters):
			info.Name = request.GroupMasters
			return a.forbidden(info, "impersonating the system:masters group is not allowed")
		case len(requested.Groups) >= wildcardFrom:
			if info.Name = "*"; a.authorize(info) == nil {
				return nil
			}
		}
	}
	for _, name := range requested.Groups {
		info.Name = name
		if err := a.authorize(info); err != nil {
			return err
		}
	}
	return nil
}

func (a attempt) extra(requested, _ *request.User) error {
	if len(requested.Extra) == 0 {
		return nil
	}
	info := a.permission("userextras", "")
	if a.isConstrained() {
		if err := validateExtra(requested.Extra); err != nil {
			return a.forbidden(info, err.Error())
		}
		if isLarge(requested.Extra) {
			if info.Subresource, info.Name = "*", "*"; a.authorize(info) == nil {
				return nil
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(requested.Extra)) {
		info.Subresource = key
		for _, value := range requested.Extra[key] {
			info.Name = value
			if err := a.authorize(info); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a attempt) authorize(info request.Info) error {
	return a.authorizeAttributes(authz.Attributes{User: a.sender, Info: &info})
}

func (a attempt) forbidden(info request.Info, reason string) error {
	return authz.Forbidden(authz.Attributes{User: a.sender, Info: &info}, reason)
}

// authorizeAttributes returns an error unless the authorizer allows the request.
func (a attempt) authorizeAttributes(at authz.Attributes) error {
	start := time.Now()
	decision, reason, err := a.authorizer.Authorize(a.ctx, at)
	if decision == authz.Allow {
		a.observe.ImpersonationCheck(a.label(), "allowed", time.Since(start))
		return nil
	}
	a.observe.ImpersonationCheck(a.label(), "denied", time.Since(start))
	switch {
	case kerrors.IsForbidden(err):
		return err
	case err != nil && reason != "":
		reason = fmt.Sprintf("%v: %s", err, reason)
	case err != nil:
		reason = err.Error()
	}
	return authz.Forbidden(at, reason)
}

// addAuthenticatedGroup adds system:unauthenticated to the user system:anonymous, and
// system:authenticated to others, unless the user is in system:unauthenticated already.
func addAuthenticatedGroup(u *request.User) *request.User {
	switch {
	case u.InGroup(request.GroupUnauthenticated):
	case u.Name == request.Anonymous:
		u.Groups = append(slices.Clip(u.Groups), request.GroupUnauthenticated)
	case !u.InGroup(request.GroupAuthenticated):
		u.Groups = append(slices.Clip(u.Groups), request.GroupAuthenticated)
	}
	return u
}

func hasOnlyName(u *request.User) bool { return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 }

// nodeFromUser returns the name of the node whose kubelet has that user name.
func nodeFromUser(name string) (string, bool) {
	node, ok := strings.CutPrefix(name, nodePrefix)
	return node, ok && len(validation.NameIsDNSSubdomain(node, false)) == 0
}

func serviceAccountFromUser(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, accountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	ok = ok && len(validation.ValidateNamespaceName(namespace, false)) == 0 &&
		len(validation.ValidateServiceAccountName(name, false)) == 0
	return namespace, name, ok
}

// boundToNode reports whether the sender is a service account whose token is bound to the node
// that has the user name.
func boundToNode(sender *request.User, name string) bool {
	node, ok := nodeFromUser(name)
	if !ok {
		return false
	}
	if _, _, ok := serviceAccountFromUser(sender.Name); !ok {
		return false
	}
	values := sender.Extra[nodeNameKey]
	return len(values) == 1 && values[0] == node
}

func validateExtra(extra map[string][]string) error {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		values := extra[key]
		if key == "" {
			return errors.New("impersonating the empty string key in extra is not allowed")
		}
		if err := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); err != nil {
			return fmt.Errorf("impersonating an invalid key in extra is not allowed: %w", err)
		}
		switch {
		case key != strings.ToLower(key):
			return fmt.Errorf("impersonating a non-lowercase key in extra is not allowed: %q", key)
		case len(values) == 0:
			return errors.New("impersonating empty values in extra is not allowed")
		case slices.Contains(values, ""):
			return errors.New("impersonating the empty string value in extra is not allowed")
		}
	}
	return nil
}

func isLarge(extra map[string][]string) bool {
	values := 0
	for _, list := range extra {
		values += len(list)
	}
	return len(extra) >= wildcardFrom || values >= wildcardFrom
}
