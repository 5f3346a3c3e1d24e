package noderestriction

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// find returns an object. If there is none, the error is NotFound, with the argument what as the name of the
// resource.
func (p *plugin) find(
	ctx context.Context, r schema.GroupResource, namespace, name, what string,
) (registry.Object, error) {
	obj, err := p.objects.Lookup(ctx, r, namespace, name)
	if err == nil && obj == nil {
		err = kerrors.NewNotFound(schema.GroupResource{Group: r.Group, Resource: what}, name)
	}
	return obj, err
}

// checkToken lets a kubelet request tokens that are bound to a pod on its node. checkAudience checks the audience.
func (p *plugin) checkToken(ctx context.Context, w *write) error {
	if w.Operation != admission.Create || w.Subresource != "token" {
		return nil
	}
	spec := &w.Object.(*authenticationv1.TokenRequest).Spec
	ref := spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return w.Forbiddenf("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return w.Forbiddenf("node requested token with a pod binding without a uid")
	}
	obj, err := p.lookup(ctx, w, pods, w.Namespace, ref.Name, "pod")
	if err != nil {
		return err
	}
	pod := obj.(*corev1.Pod)
	if ref.UID != pod.UID {
		return w.Forbiddenf("the UID in the bound object reference (%s) does not match the UID in record. The object might "+
			"have been deleted and then recreated", ref.UID)
	}
	if pod.Spec.NodeName != w.node {
		return w.Forbiddenf("node requested token bound to a pod scheduled on a different node")
	}
	if err := p.checkAudience(ctx, w, spec.Audiences, pod); err != nil {
		return w.Forbidden(err)
	}
	return nil
}

// checkAudience checks whether the pod uses tokens of the audience. If it does not, the node needs a permission
// for them.
func (p *plugin) checkAudience(ctx context.Context, w *write, audiences []string, pod *corev1.Pod) error {
	audience := ""
	switch len(audiences) {
	case 0:
	case 1:
		audience = audiences[0]
	default:
		return errors.New("node may only request 0 or 1 audiences")
	}
	uses, err := p.usesAudience(ctx, pod, audience)
	if err != nil {
		return fmt.Errorf("error validating audience %q: %w", audience, err)
	}
	if uses {
		return nil
	}
	switch allowed, err := p.permits(ctx, w, "request-serviceaccounts-token-audience", audience, w.Name); {
	case allowed:
		return nil
	case err != nil:
		return fmt.Errorf("error authorizing %s to request tokens for audience %q: %w", w.User.Name, audience, err)
	}
	return fmt.Errorf("%s is not authorized to request tokens for audience %q", w.User.Name, audience)
}

// usesAudience reports whether a volume of the pod is a token of the audience, or belongs to a CSI driver that
// gets such tokens. It returns errors only if it finds no such volume.
func (p *plugin) usesAudience(ctx context.Context, pod *corev1.Pod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil {
			if slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
				return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
			}) {
				return true, nil
			}
		}
		driver, err := p.driverOf(ctx, pod, v)
		uses := false
		if err == nil && driver != "" {
			uses, err = p.driverUses(ctx, driver, audience)
		}
		if uses {
			return true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return false, utilerrors.NewAggregate(errs)
}

// driverOf returns the name of the CSI driver of a volume, "" if it has none.
func (p *plugin) driverOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return p.driverOfClaim(ctx, pod.Namespace, pod.Name+"-"+v.Name)
	case v.PersistentVolumeClaim != nil:
		return p.driverOfClaim(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.CSI != nil:
		return v.CSI.Driver, nil
	}
	return migratedDriver(map[string]bool{
		gcePD: v.GCEPersistentDisk != nil, awsEBS: v.AWSElasticBlockStore != nil, cinder: v.Cinder != nil,
		azureDisk: v.AzureDisk != nil, azureFile: v.AzureFile != nil, vSphere: v.VsphereVolume != nil,
		portworx: v.PortworxVolume != nil,
	}), nil
}

// driverOfClaim returns the name of the CSI driver of the volume that a claim is bound to.
func (p *plugin) driverOfClaim(ctx context.Context, namespace, name string) (string, error) {
	claim, err := p.find(ctx, claims, namespace, name, "persistentvolumeclaim")
	if err != nil {
		return "", err
	}
	volume, err := p.find(
		ctx, volumes, "", claim.(*corev1.PersistentVolumeClaim).Spec.VolumeName, "persistentvolume",
	)
	if err != nil {
		return "", err
	}
	v := &volume.(*corev1.PersistentVolume).Spec
	if v.CSI != nil {
		return v.CSI.Driver, nil
	}
	return migratedDriver(map[string]bool{
		gcePD: v.GCEPersistentDisk != nil, awsEBS: v.AWSElasticBlockStore != nil, cinder: v.Cinder != nil,
		azureDisk: v.AzureDisk != nil, azureFile: v.AzureFile != nil, vSphere: v.VsphereVolume != nil,
		portworx: v.PortworxVolume != nil,
	}), nil
}

// The CSI drivers that have replaced the drivers which were part of Kubernetes. A volume of the old kind belongs to the
// new driver.
const (
	gcePD     = "pd.csi.storage.gke.io"
	awsEBS    = "ebs.csi.aws.com"
	cinder    = "cinder.csi.openstack.org"
	azureDisk = "disk.csi.azure.com"
	azureFile = "file.csi.azure.com"
	vSphere   = "csi.vsphere.vmware.com"
	portworx  = "pxd.portworx.com"
)

// migratedDriver returns the driver of a volume with one of the old sources, "" if it has none of them.
func migratedDriver(has map[string]bool) string {
	for driver, ok := range has {
		if ok {
			return driver
		}
	}
	return ""
}

// driverUses reports whether a CSI driver gets tokens of the audience.
func (p *plugin) driverUses(ctx context.Context, name, audience string) (bool, error) {
	driver, err := p.find(ctx, csiDrivers, "", name, "csidriver")
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(driver.(*storagev1.CSIDriver).Spec.TokenRequests, func(r storagev1.TokenRequest) bool {
		return r.Audience == audience
	}), nil
}
