package apiregistration

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// The largest priorities, as text for messages.
// The limits themselves are accepted, although the messages say "less than".
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

func validate(s *apiregistrationv1.APIService) field.ErrorList {
	var errs field.ErrorList
	invalid := func(path *field.Path, value any, why string) {
		errs = append(errs, field.Invalid(path, value, why))
	}
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	name := s.Spec.Version + "." + s.Spec.Group
	// The name is VERSION.GROUP, such as v1.apps, and v1. for the core group. So there is one APIService for each
	// version of a group. generateName can only be that text too.
	why := fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", name)
	errs = append(errs, field.InvalidIf(s.GenerateName != "" && s.GenerateName != name, metadata.Child("generateName"),
		s.GenerateName, why)...)
	errs = append(errs, field.InvalidIf(s.Name != "" && s.Name != name, metadata.Child("name"), s.Name, why)...)
	errs = append(errs, validateGroupVersion(&s.Spec, spec)...)
	if n := s.Spec.GroupPriorityMinimum; n <= 0 || n > maxGroupPriority {
		invalid(spec.Child("groupPriorityMinimum"), n, fmt.Sprintf("must be positive and less than %d", maxGroupPriority))
	}
	if n := s.Spec.VersionPriority; n <= 0 || n > maxVersionPriority {
		invalid(spec.Child("versionPriority"), n, fmt.Sprintf("must be positive and less than %d", maxVersionPriority))
	}
	bundle, insecure := spec.Child("caBundle"), spec.Child("insecureSkipTLSVerify")
	// An APIService without a Service is answered by this server itself. There is no connection whose certificate
	// could be checked.
	if s.Spec.Service == nil {
		if len(s.Spec.CABundle) != 0 {
			invalid(bundle, fmt.Sprintf("%d bytes", len(s.Spec.CABundle)), "local APIServices may not have a caBundle")
		}
		return append(errs, field.InvalidIf(s.Spec.InsecureSkipTLSVerify, insecure, true,
			"local APIServices may not have insecureSkipTLSVerify")...)
	}
	service := spec.Child("service")
	errs = append(errs, field.NotEmpty(service.Child("namespace"), s.Spec.Service.Namespace)...)
	errs = append(errs, field.NotEmpty(service.Child("name"), s.Spec.Service.Name)...)
	if p := s.Spec.Service.Port; p != nil {
		errs = append(errs, field.Joined(service.Child("port"), *p, "port is not valid: ", validation.IsValidPortNum(int(*p)))...)
	}
	// A bundle that is not used would look as if certificates were checked.
	return append(errs, field.InvalidIf(s.Spec.InsecureSkipTLSVerify && len(s.Spec.CABundle) != 0, insecure, true,
		"may not be true if caBundle is present")...)
}

// validateGroupVersion validates the served group and version. Only the version v1 of the core group has an empty group.
func validateGroupVersion(s *apiregistrationv1.APIServiceSpec, path *field.Path) (errs field.ErrorList) {
	at := path.Child("group")
	switch {
	case s.Group != "":
		errs = append(errs, field.DNSSubdomain(at, s.Group)...)
	case s.Version != "v1":
		errs = append(errs, field.Required(at, "only v1 may have an empty group and it better be legacy kube"))
	}
	return append(errs, field.Messages(path.Child("version"), s.Version, validation.IsDNS1035Label(s.Version))...)
}
