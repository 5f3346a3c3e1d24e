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

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
)

const (
	accountPrefix = "system:serviceaccount:"
	accountsGroup = "system:serviceaccounts"
	nodePrefix    = "system:node:"
	nodesGroup    = "system:nodes"

	group   = "authentication.k8s.io"
	version = "v1"

	// nodeNameKey is what a token that is bound to a node says of it.
	nodeNameKey = "authentication.kubernetes.io/node-name"
	// associatedKeys stands for a token's extras where they do not count.
	associatedKeys = "authentication.kubernetes.io/associated-node-keys"

	// many is from how many groups or extra values on the permission for all of
	// them is asked for first.
	many = 4

	legacyVerb = "impersonate"
)

// A mode is a kind of impersonation with verbs of its own. All but the legacy one
// are constrained: beside the permission to be somebody they need the one to do
// what the request does as such a somebody.
type mode struct {
	// name is "" for the legacy mode.
	name string
	// applies says whether the mode is about such a user.
	applies func(asked, sender *request.User) bool
}

// modes are tried from top to bottom, the strictest first.
var modes = []mode{
	{"associated-node", func(asked, sender *request.User) bool {
		return onlyName(asked) && isOnNode(sender, asked.Name)
	}},
	{"arbitrary-node", func(asked, _ *request.User) bool {
		_, ok := nodeOf(asked.Name)
		return ok && onlyName(asked)
	}},
	{"serviceaccount", func(asked, _ *request.User) bool {
		_, _, ok := accountOf(asked.Name)
		return ok && onlyName(asked)
	}},
	{"user-info", func(asked, _ *request.User) bool {
		_, node := nodeOf(asked.Name)
		_, _, account := accountOf(asked.Name)
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

// constraint is the verb that allows to be somebody, for audit; "" of the legacy
// mode.
func (m *mode) constraint() string {
	if m.name == "" {
		return ""
	}
	return m.verb()
}

func (m *mode) verb() string {
	if m.name == "" {
		return legacyVerb
	}
	return legacyVerb + ":" + m.name
}

func (m *mode) constrained() bool { return m.name != "" }

// associated says that the node is the sender's own, whose name thus does not
// count.
func (m *mode) associated() bool { return m.name == "associated-node" }

// attempt is one mode's way through the permissions that are needed.
type attempt struct {
	*filter
	*mode
	ctx    context.Context
	sender *request.User
}

// try returns the user to go on as if the mode allows it. No user and no error
// is for a mode that is not about such a user.
func (f *filter) try(ctx context.Context, m *mode, asked *request.User, at authz.Attributes) (*request.User, error) {
	if !m.applies(asked, at.User) {
		return nil, nil
	}
	a := attempt{f, m, ctx, at.User}
	if m.associated() {
		sender := *at.User
		sender.Extra = map[string][]string{associatedKeys: slices.Sorted(maps.Keys(at.User.Extra))}
		a.sender = &sender
	}
	if m.constrained() {
		info := *at.Info
		info.Verb = "impersonate-on:" + m.name + ":" + info.Verb
		if err := a.check(authz.Attributes{User: a.sender, Info: &info, Selectors: at.Selectors}); err != nil {
			return nil, err
		}
	}
	user := *asked
	for _, step := range []func(asked, user *request.User) error{a.name, a.uid, a.groups, a.extra} {
		if err := step(asked, &user); err != nil {
			return nil, err
		}
	}
	return complete(&user), nil
}

// about is a question about something that is to be impersonated. The groups and
// users of the legacy mode are of the core group.
func (a attempt) about(resource, name string) request.Info {
	info := request.Info{Verb: a.verb(), Group: group, Version: version, Resource: resource, Name: name}
	if !a.constrained() && resource != "uids" && resource != "userextras" {
		info.Group = ""
	}
	return info
}

func (a attempt) name(asked, user *request.User) error {
	info := a.about("users", asked.Name)
	if node, ok := nodeOf(asked.Name); ok && a.constrained() {
		info.Resource, info.Name = "nodes", node
		if a.associated() {
			info.Name = "*"
		}
		user.Groups = []string{nodesGroup}
	}
	if namespace, name, ok := accountOf(asked.Name); ok {
		info.Resource, info.Namespace, info.Name = "serviceaccounts", namespace, name
		if len(asked.Groups) == 0 {
			user.Groups = []string{accountsGroup, accountsGroup + ":" + namespace}
		}
	}
	return a.ask(info)
}

func (a attempt) uid(asked, _ *request.User) error {
	if asked.UID == "" {
		return nil
	}
	return a.ask(a.about("uids", asked.UID))
}

func (a attempt) groups(asked, _ *request.User) error {
	if len(asked.Groups) == 0 {
		return nil
	}
	info := a.about("groups", "")
	if a.constrained() {
		switch {
		case slices.Contains(asked.Groups, ""):
			return a.forbidden(info, "impersonating the empty string group is not allowed")
		case slices.Contains(asked.Groups, request.GroupMasters):
			info.Name = request.GroupMasters
			return a.forbidden(info, "impersonating the system:masters group is not allowed")
		case len(asked.Groups) >= many:
			if info.Name = "*"; a.ask(info) == nil {
				return nil
			}
		}
	}
	for _, name := range asked.Groups {
		info.Name = name
		if err := a.ask(info); err != nil {
			return err
		}
	}
	return nil
}

func (a attempt) extra(asked, _ *request.User) error {
	if len(asked.Extra) == 0 {
		return nil
	}
	info := a.about("userextras", "")
	if a.constrained() {
		if err := validateExtra(asked.Extra); err != nil {
			return a.forbidden(info, err.Error())
		}
		if isLarge(asked.Extra) {
			if info.Subresource, info.Name = "*", "*"; a.ask(info) == nil {
				return nil
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(asked.Extra)) {
		info.Subresource = key
		for _, value := range asked.Extra[key] {
			info.Name = value
			if err := a.ask(info); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a attempt) ask(info request.Info) error {
	return a.check(authz.Attributes{User: a.sender, Info: &info})
}

func (a attempt) forbidden(info request.Info, reason string) error {
	return authz.Forbidden(authz.Attributes{User: a.sender, Info: &info}, reason)
}

// check returns a refusal unless the authorizer allows.
func (a attempt) check(at authz.Attributes) error {
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

// complete adds the group of those who are signed in, or of those who are not.
func complete(u *request.User) *request.User {
	switch {
	case u.InGroup(request.GroupUnauthenticated):
	case u.Name == request.Anonymous:
		u.Groups = append(slices.Clip(u.Groups), request.GroupUnauthenticated)
	case !u.InGroup(request.GroupAuthenticated):
		u.Groups = append(slices.Clip(u.Groups), request.GroupAuthenticated)
	}
	return u
}

func onlyName(u *request.User) bool { return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 }

// nodeOf returns the node whose user has that name.
func nodeOf(name string) (string, bool) {
	node, ok := strings.CutPrefix(name, nodePrefix)
	return node, ok && len(validation.NameIsDNSSubdomain(node, false)) == 0
}

// accountOf returns the service account whose user has that name.
func accountOf(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, accountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	ok = ok && len(validation.ValidateNamespaceName(namespace, false)) == 0 &&
		len(validation.ValidateServiceAccountName(name, false)) == 0
	return namespace, name, ok
}

// isOnNode says whether the sender is a service account whose token is bound to
// the node of that user name.
func isOnNode(sender *request.User, name string) bool {
	node, ok := nodeOf(name)
	if !ok {
		return false
	}
	if _, _, ok := accountOf(sender.Name); !ok {
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
	return len(extra) >= many || values >= many
}
