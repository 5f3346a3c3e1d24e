// Package alwayspullimages makes kubelets pull the images of new pods each time, so that only pods with the credentials
// of a private image can run it (AlwaysPullImages).
package alwayspullimages

import (
	"context"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

var pods = corev1.Resource("pods")

// Plugin returns the plug-in.
func Plugin() admission.Plugin {
	return admission.Plugin{Name: "AlwaysPullImages", Mutate: mutate, Validate: validate}
}

// image is one use of an image in a pod.
type image struct {
	reference string
	policy    *corev1.PullPolicy
	path      *field.Path
}

func containerImages(spec *corev1.PodSpec) []image {
	path := field.NewPath("spec")
	var out []image
	add := func(list string, i int, reference string, policy *corev1.PullPolicy) {
		out = append(out, image{reference, policy, path.Child(list).Index(i).Child("imagePullPolicy")})
	}
	for i := range spec.InitContainers {
		add("initContainers", i, spec.InitContainers[i].Image, &spec.InitContainers[i].ImagePullPolicy)
	}
	for i := range spec.Containers {
		add("containers", i, spec.Containers[i].Image, &spec.Containers[i].ImagePullPolicy)
	}
	for i := range spec.EphemeralContainers {
		add("ephemeralContainers", i, spec.EphemeralContainers[i].Image, &spec.EphemeralContainers[i].ImagePullPolicy)
	}
	return out
}

// volumeImages returns the images of the volumes of a pod.
func volumeImages(spec *corev1.PodSpec) []image {
	path := field.NewPath("spec", "volumes")
	var out []image
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil {
			out = append(out, image{v.Reference, &v.PullPolicy, path.Index(i).Child("image", "pullPolicy")})
		}
	}
	return out
}

// applies reports whether a write makes a pod, or gives a container of a pod an image that none of its containers had.
func applies(a *admission.Attributes) bool {
	if a.Is(pods, admission.Create) {
		return true
	}
	if !a.Is(pods, admission.Update) {
		return false
	}
	had := map[string]bool{}
	for _, i := range containerImages(&a.Old.(*corev1.Pod).Spec) {
		had[i.reference] = true
	}
	now := containerImages(&a.Object.(*corev1.Pod).Spec)
	return slices.ContainsFunc(now, func(i image) bool { return !had[i.reference] })
}

func mutate(_ context.Context, a *admission.Attributes) error {
	if !applies(a) {
		return nil
	}
	spec := &a.Object.(*corev1.Pod).Spec
	for _, i := range append(containerImages(spec), volumeImages(spec)...) {
		*i.policy = corev1.PullAlways
	}
	return nil
}

// validate checks the pull policies again, because a later plug-in, such as a webhook, may have changed them.
func validate(_ context.Context, a *admission.Attributes) error {
	if !applies(a) {
		return nil
	}
	spec := &a.Object.(*corev1.Pod).Spec
	var errs []error
	for _, i := range append(containerImages(spec), volumeImages(spec)...) {
		if *i.policy != corev1.PullAlways {
			errs = append(errs, a.Forbidden(field.NotSupported(i.path, *i.policy, []corev1.PullPolicy{corev1.PullAlways})))
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		// kube-apiserver answers a list of refusals with this code.
		return apierr.New(http.StatusInternalServerError, "", err.Error())
	}
	return nil
}
