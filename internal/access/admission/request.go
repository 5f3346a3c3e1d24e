package admission

import (
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Sender returns the user of a write. For a write of the server itself it is the user of kube-apiserver's own requests.
func (a *Attributes) Sender() *request.User {
	if a.User != nil {
		return a.User
	}
	return &request.User{Name: "system:apiserver", Groups: []string{"system:authenticated", request.GroupMasters}}
}

// Request returns a write as webhooks and policies see it, without its uid and its objects. names are those by which it
// matched.
func (a *Attributes) Request(names Names) *admissionv1.AdmissionRequest {
	kind, resource := metav1.GroupVersionKind(a.Requested.Kind), metav1.GroupVersionResource(a.Requested.Resource)
	dryRun := a.Options.DryRun
	r := &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(names.Kind), Resource: metav1.GroupVersionResource(names.Resource),
		RequestKind: &kind, RequestResource: &resource,
		SubResource: a.Subresource, RequestSubResource: a.Subresource,
		Name: a.Name, Namespace: a.NamespaceName(), Operation: admissionv1.Operation(a.Operation.String()),
		UserInfo: a.Sender().UserInfo(), DryRun: &dryRun,
	}
	if options := a.OptionsObject(); options != nil {
		r.Options.Object = options
	}
	return r
}
