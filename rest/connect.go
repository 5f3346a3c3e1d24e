package rest

import (
	"context"
	"errors"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
)

// interactive are the subresources of a pod that run something in it, or talk to
// it.
var interactive = map[string]bool{"exec": true, "attach": true, "portforward": true}

// mayConnect says whether the user of a connection to a pod may make it. A
// WebSocket begins with a GET, and yet whoever may only get must not run commands:
// the permission to create is needed whatever the method is.
func (h *Handler) mayConnect(ctx context.Context, info *request.Info) error {
	if info.Group != "" || info.Resource != "pods" || !interactive[info.Subresource] || info.Verb == "create" {
		return nil
	}
	user := request.UserFrom(ctx)
	if h.o.Authorizer == nil || user == nil {
		return nil
	}
	create := *info
	create.Verb = "create"
	decision, reason, err := h.o.Authorizer.Authorize(ctx, authz.Attributes{User: user, Info: &create})
	switch {
	case err != nil:
		return err
	case decision != authz.Allow:
		return kerrors.NewForbidden(schema.GroupResource{Resource: info.Resource}, info.Name, errors.New(reason))
	}
	return nil
}
