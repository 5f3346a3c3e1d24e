package server

import (
	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/admission/plugin/ingressclass"
	"github.com/keelson-dev/keelson/admission/plugin/lifecycle"
	"github.com/keelson-dev/keelson/admission/plugin/priority"
	"github.com/keelson-dev/keelson/admission/plugin/protection"
	"github.com/keelson-dev/keelson/admission/plugin/serviceaccount"
	"github.com/keelson-dev/keelson/admission/plugin/storageclass"
	"github.com/keelson-dev/keelson/admission/plugin/taint"
	"github.com/keelson-dev/keelson/admission/plugin/toleration"
	"github.com/keelson-dev/keelson/registry"
)

// admissionChain is the order of admission, the reference's. last are judges of
// what the others made.
func admissionChain(reg *registry.Registry, last ...admission.Plugin) *admission.Chain {
	return admission.NewChain(append([]admission.Plugin{
		lifecycle.Plugin(reg),
		serviceaccount.Plugin(reg),
		taint.Plugin(),
		priority.Plugin(reg),
		toleration.Plugin(),
		protection.Plugin(),
		ingressclass.Plugin(reg),
		storageclass.Plugin(reg),
	}, last...)...)
}
