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

// admissionChain is the order of admission, which is kube-apiserver's. Some ask z whether a
// user may do more than the request itself. last are judges of what the others made.
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
