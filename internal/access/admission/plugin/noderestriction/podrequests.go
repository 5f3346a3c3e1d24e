package noderestriction

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// checkPodRequest lets a kubelet create PodCertificateRequests for pods on its node that are not mirror pods. The
// node, the pod and its service account must match the current ones. A volume of the pod has to be a certificate
// of the signer, unless the node has the permission to request other certificates. As in kube-apiserver, a fault
// that may disappear when the kubelet tries again is a 500; any other is Forbidden.
func (p *plugin) checkPodRequest(ctx context.Context, w *write) error {
	if w.Operation != admission.Create {
		return w.Forbiddenf("unexpected operation %v", w.Operation)
	}
	if w.Subresource != "" {
		return w.Forbiddenf("unexpected subresource %v", w.Subresource)
	}
	spec := &w.Object.(*certificatesv1beta1.PodCertificateRequest).Spec
	if string(spec.NodeName) != w.node {
		return w.Forbiddenf("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", spec.NodeName, w.node)
	}
	podName := w.Namespace + "/" + spec.PodName
	_, err := p.named(ctx, w, podName, namedObject{nodes, "node", "", w.node, spec.NodeUID,
		"PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)"})
	if err != nil {
		return err
	}
	found, err := p.named(ctx, w, podName, namedObject{pods, "pod", w.Namespace, spec.PodName, spec.PodUID,
		"PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q"})
	if err != nil {
		return err
	}
	pod := found.(*corev1.Pod)
	if err := checkRunning(w, spec, pod); err != nil {
		return err
	}
	_, err = p.named(ctx, w, podName, namedObject{
		accounts, "service account", w.Namespace, spec.ServiceAccountName, spec.ServiceAccountUID,
		"PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)"})
	if err != nil || usesSigner(pod, spec.SignerName) {
		return err
	}
	// The name of a resource in a role cannot have a slash. ClusterTrustBundles have the names of signers in this form, too.
	signer := strings.ReplaceAll(spec.SignerName, "/", ":")
	switch allowed, err := p.permits(
		ctx, w, "request-serviceaccounts-podcertificate-signer", signer, spec.ServiceAccountName); {
	case allowed:
		return nil
	case err != nil:
		return w.Forbiddenf("error authorizing %s to request podcertificaterequests for signer %q: %w",
			w.User.Name, spec.SignerName, err)
	}
	return w.Forbiddenf("pod %q does not mount a podCertificate projected volume for signer %q", podName, spec.SignerName)
}

// usesSigner reports whether a volume of the pod is a certificate of the signer.
func usesSigner(pod *corev1.Pod, signer string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && s.PodCertificate.SignerName == signer
		})
	})
}

// checkRunning checks that a pod runs on the node with the service account that the request names.
func checkRunning(w *write, spec *certificatesv1beta1.PodCertificateRequestSpec, pod *corev1.Pod) error {
	name := w.Namespace + "/" + spec.PodName
	if pod.Spec.NodeName != w.node {
		return w.Forbiddenf("pod %q is not running on node %q named in the PodCertificateRequest", name, spec.NodeName)
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return w.Forbiddenf("pod %q is a mirror pod", name)
	}
	if spec.ServiceAccountName != pod.Spec.ServiceAccountName {
		return w.Forbiddenf("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod "+
			"(%q)", name, spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	return nil
}

// namedObject is an object that a PodCertificateRequest names.
type namedObject struct {
	resource        schema.GroupResource
	what            string // kube-apiserver's name of the kind in messages
	namespace, name string
	uid             types.UID // as the request has it
	differs         string    // the format of the error if the UID differs, with the pod and both UIDs
}

// named returns an object that the PodCertificateRequest of a pod names.
func (p *plugin) named(ctx context.Context, w *write, pod string, n namedObject) (registry.Object, error) {
	displayName := n.name
	if n.namespace != "" {
		displayName = n.namespace + "/" + n.name
	}
	obj, err := p.find(ctx, n.resource, n.namespace, n.name, strings.ReplaceAll(n.what, " ", ""))
	switch {
	case kerrors.IsNotFound(err):
		return nil, passing("while retrieving %s %q named in the PodCertificateRequest: %v", n.what, displayName, err)
	case err != nil:
		return nil, w.Forbiddenf("while retrieving %s %q named in the PodCertificateRequest: %w", n.what, displayName, err)
	case obj.GetUID() != n.uid:
		return nil, passing(n.differs, pod, n.uid, obj.GetUID())
	}
	return obj, nil
}

// passing returns an error with code 500, for a fault that may be gone when the request is repeated.
func passing(format string, args ...any) error {
	return apierr.New(http.StatusInternalServerError, "", fmt.Sprintf(format, args...))
}
