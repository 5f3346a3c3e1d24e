package server

import (
	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/admission/plugin/certificates"
	"github.com/keelson-dev/keelson/admission/plugin/ingressclass"
	"github.com/keelson-dev/keelson/admission/plugin/lifecycle"
	"github.com/keelson-dev/keelson/admission/plugin/priority"
	"github.com/keelson-dev/keelson/admission/plugin/protection"
	"github.com/keelson-dev/keelson/admission/plugin/serviceaccount"
	"github.com/keelson-dev/keelson/admission/plugin/storageclass"
	"github.com/keelson-dev/keelson/admission/plugin/taint"
	"github.com/keelson-dev/keelson/admission/plugin/toleration"
	"github.com/keelson-dev/keelson/admission/plugin/unenforced"
	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/registry"
)

// admissionChain returns the admission plugins in the order of kube-apiserver. Some ask the authorizer z whether
// the user has further permissions. The plugins in last validate what the others have changed.
func admissionChain(reg *registry.Registry, z authz.Authorizer, last ...admission.Plugin) *admission.Chain {
	return admission.NewChain(append([]admission.Plugin{
		lifecycle.Plugin(reg),
		serviceaccount.Plugin(reg),
		taint.Plugin(),
		priority.Plugin(reg),
		toleration.Plugin(),
		protection.Plugin(),
		certificates.Approval(z),
		certificates.Signing(z),
		certificates.SubjectRestriction(),
		ingressclass.Plugin(reg),
		storageclass.Plugin(reg),
		unenforced.Plugin(),
	}, last...)...)
}
