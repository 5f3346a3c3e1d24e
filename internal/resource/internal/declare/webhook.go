package declare

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// reviewVersions are the known versions of the requests to webhooks. A webhook has to accept one of them.
const reviewVersions = "v1, v1beta1"

// ValidateWebhookClient validates how a webhook is called: by a URL or through a Service.
func ValidateWebhookClient(url *string, service *WebhookService, path *field.Path) field.ErrorList {
	switch {
	case (url == nil) == (service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case url != nil:
		return validateWebhookURL(*url, path.Child("url"))
	}
	return service.validate(path.Child("service"))
}

// validateWebhookURL validates a URL; https://hooks.example.com:8443/admit is accepted. The scheme http is
// refused, because a webhook sees every object that it is called for, Secrets included.
func validateWebhookURL(text string, path *field.Path) (errs field.ErrorList) {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(path, "url must be a valid URL: "+err.Error()+form)}
	}
	errs = append(errs, field.InvalidIf(u.Scheme != "https", path, u.Scheme,
		"'https' is the only allowed URL scheme"+form)...)
	errs = append(errs, field.InvalidIf(u.Host == "", path, u.Host, "host must be specified"+form)...)
	if u.User != nil {
		errs = append(errs, field.Invalid(path, u.User.String(), "user information is not permitted in the URL"))
	}
	errs = append(errs, field.InvalidIf(u.Fragment != "", path, u.Fragment, "fragments are not permitted in the URL")...)
	return append(errs, field.InvalidIf(u.RawQuery != "", path, u.RawQuery,
		"query parameters are not permitted in the URL")...)
}

// WebhookService is a reference to the Service of a webhook.
type WebhookService struct {
	Namespace, Name string
	Path            *string
	Port            *int32 // nil is 0, which is not valid
}

// validate returns errors for a missing name, a missing namespace, a bad path and a bad port. The paths of the first two
// errors are exchanged, as in kube-apiserver: without a name, the error is about the field namespace.
func (s *WebhookService) validate(path *field.Path) (errs field.ErrorList) {
	errs = append(errs, field.NotEmpty(path.Child("name"), s.Namespace)...)
	errs = append(errs, field.NotEmpty(path.Child("namespace"), s.Name)...)
	port := ptr.Deref(s.Port, 0)
	if why := validation.IsValidPortNum(int(port)); len(why) > 0 {
		errs = append(errs, field.Invalid(path.Child("port"), port, "port is not valid: "+strings.Join(why, ", ")))
	}
	return append(errs, field.Optional(path.Child("path"), s.Path, validateWebhookPath)...)
}

// validateWebhookPath validates the path of requests to a Service. Each segment has to be a subdomain: /admit/v1
// is accepted, /Admit and /a//b are refused. A slash at the end is ignored.
func validateWebhookPath(path *field.Path, text string) (errs field.ErrorList) {
	switch text {
	case "", "/":
		return nil
	case "//":
		return field.ErrorList{field.Invalid(path, text, "segment[0] may not be empty")}
	}
	errs = append(errs, field.InvalidIf(text[0] != '/', path, text, "must start with a '/'")...)
	// Like kube-apiserver, this skips the first byte even if it is not a slash.
	for i, segment := range strings.Split(strings.TrimSuffix(text[1:], "/"), "/") {
		if segment == "" {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, why := range validation.IsDNS1123Subdomain(segment) {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("segment[%d]: %v", i, why)))
		}
	}
	return errs
}

// ValidateReviewVersions validates the versions of requests that a webhook accepts. missing is the detail of the error
// for an empty list. If anyVersion is true, no known version is required.
func ValidateReviewVersions(versions []string, missing string, anyVersion bool, path *field.Path) (errs field.ErrorList) {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, missing)}
	}
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		errs = append(errs, field.Messages(path.Index(i), v, validation.IsDNS1035Label(v))...)
	}
	return append(errs, field.InvalidIf(!anyVersion && !HasReviewVersion(versions), path, versions,
		"must include at least one of "+reviewVersions)...)
}

// HasReviewVersion reports whether a known version is in the list.
func HasReviewVersion(versions []string) bool {
	return slices.Contains(versions, "v1") || slices.Contains(versions, "v1beta1")
}
