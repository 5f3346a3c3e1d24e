package noderestriction

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// checkPodRequest lets a kubelet create PodCertificateRequests for pods on its node that are not mirror pods. The node,
// the pod and its service account must match the current ones. As in kube-apiserver, a fault that may disappear when
// the kubelet tries again is a 500; any other is Forbidden.
func (p *plugin) checkPodRequest(ctx context.Context, w *write) error {
	if w.Operation != admission.Create {
		return w.refuse("unexpected operation %v", w.Operation)
	}
	if w.Subresource != "" {
		return w.refuse("unexpected subresource %v", w.Subresource)
	}
	spec := &w.Object.(*certificatesv1beta1.PodCertificateRequest).Spec
	if string(spec.NodeName) != w.node {
		return w.refuse("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", spec.NodeName, w.node)
	}
	if _, err := p.named(ctx, w, nodes, "node", "", w.node, func(_ string, found types.UID) string {
		if found == spec.NodeUID {
			return ""
		}
		return fmt.Sprintf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)",
			w.Namespace+"/"+spec.PodName, spec.NodeUID, found)
	}); err != nil {
		return err
	}
	found, err := p.named(ctx, w, pods, "pod", w.Namespace, spec.PodName, func(name string, found types.UID) string {
		if found == spec.PodUID {
			return ""
		}
		return fmt.Sprintf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q",
			name, spec.PodUID, found)
	})
	if err != nil {
		return err
	}
	if err := checkRunning(w, spec, found.(*corev1.Pod)); err != nil {
		return err
	}
	_, err = p.named(ctx, w, accounts, "service account", w.Namespace, spec.ServiceAccountName,
		func(_ string, found types.UID) string {
			if found == spec.ServiceAccountUID {
				return ""
			}
			return fmt.Sprintf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running "+
				"service account (%q)", w.Namespace+"/"+spec.PodName, spec.ServiceAccountUID, found)
		})
	return err
}

// checkRunning checks that a pod runs on the node with the service account that the request names.
func checkRunning(w *write, spec *certificatesv1beta1.PodCertificateRequestSpec, pod *corev1.Pod) error {
	name := w.Namespace + "/" + spec.PodName
	if pod.Spec.NodeName != w.node {
		return w.refuse("pod %q is not running on node %q named in the PodCertificateRequest", name, spec.NodeName)
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return w.refuse("pod %q is a mirror pod", name)
	}
	if spec.ServiceAccountName != pod.Spec.ServiceAccountName {
		return w.refuse("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod "+
			"(%q)", name, spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	return nil
}

// named returns an object that a PodCertificateRequest names. differs returns an error text for its UID, "" if the UID
// is correct. what is kube-apiserver's name of the kind in messages.
func (p *plugin) named(
	ctx context.Context, w *write, r schema.GroupResource, what, namespace, name string,
	differs func(displayName string, found types.UID) string,
) (registry.Object, error) {
	displayName := name
	if namespace != "" {
		displayName = namespace + "/" + name
	}
	obj, err := p.find(ctx, r, namespace, name, strings.ReplaceAll(what, " ", ""))
	if isNotFound(err) {
		return nil, passing(fmt.Sprintf(
			"while retrieving %s %q named in the PodCertificateRequest: %v", what, displayName, err))
	}
	if err != nil {
		return nil, w.refuse("while retrieving %s %q named in the PodCertificateRequest: %w", what, displayName, err)
	}
	if wrong := differs(displayName, obj.GetUID()); wrong != "" {
		return nil, passing(wrong)
	}
	return obj, nil
}

// passing returns an error that may be gone when the request is repeated.
func passing(text string) error { return apierr.New(http.StatusInternalServerError, "", text) }
