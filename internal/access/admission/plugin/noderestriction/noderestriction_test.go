package noderestriction

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// allowed is the audience that nodes may request tokens for without a volume.
const allowed = "allowed"

type authorizer struct{}

func (authorizer) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.Info.Verb == "request-serviceaccounts-token-audience" && a.Info.Resource == allowed && a.Info.Name == "robot" {
		return authz.Allow, "", nil
	}
	if a.Info.Verb == "request-serviceaccounts-podcertificate-signer" && a.Info.Group == "certificates.k8s.io" &&
		a.Info.Version == "v1" && a.Info.Resource == "example.com:allowed" && a.Info.Name == "robot" {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// meta returns the metadata of an object in the namespace n with the UID uid-x.
func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "n", Name: name, UID: "uid-x"}
}

// pod returns a pod on a node.
func pod(name, node string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(name), Spec: corev1.PodSpec{NodeName: node}}
	if change != nil {
		change(p)
	}
	return p
}

// mirror returns a mirror pod of node a.
func mirror(change func(*corev1.Pod)) *corev1.Pod {
	p := pod("m", "a", nil)
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: "a", UID: "node-a", Controller: ptr.To(true)},
	}
	if change != nil {
		change(p)
	}
	return p
}

func newNode(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "node-a", Labels: map[string]string{}}}
	for _, l := range labels {
		n.Labels[l] = "v"
	}
	return n
}

func objects() admissiontest.Objects {
	csi := func(driver string) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: driver}}
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
		return v
	}
	disk := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
	disk.Spec.GCEPersistentDisk = &corev1.GCEPersistentDiskVolumeSource{}
	claim := func(name, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: meta(name), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume},
		}
	}
	driver := func(name, audience string) *storagev1.CSIDriver {
		d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}}
		d.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: audience}}
		return d
	}
	with := func(p *corev1.Pod, sources ...corev1.VolumeSource) *corev1.Pod {
		for _, s := range sources {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: s})
		}
		return p
	}
	onClaim := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	return admissiontest.Objects{
		nodes: {newNode("a")},
		pods: {
			with(pod("own", "a", nil), corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "projected"}},
				},
			}}, corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "inline"}}, onClaim("claimed"), onClaim("old"),
				corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{},
				}}, corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}}),
			with(pod("broken", "a", nil), onClaim("none"), onClaim("unbound")),
			pod("plain", "a", nil), pod("other", "b", nil),
		},
		claims:  {claim("claimed", "csi"), claim("old", "disk"), claim("own-v", "ephemeral"), claim("unbound", "")},
		volumes: {csi("csi"), csi("ephemeral"), disk},
		csiDrivers: {
			driver("inline", "by-inline"), driver("csi", "by-claim"), driver("ephemeral", "by-ephemeral"),
			driver(gcePD, "by-disk"), driver(awsEBS, "by-inline-disk"),
		},
	}
}

// csr returns a request for a certificate with a common name.
func csr(t *testing.T, signer, commonName string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(
		rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName}}, key,
	)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}}
}

// attempt is a write of the kubelet of node a.
type attempt struct {
	operation   admission.Operation
	resource    schema.GroupResource
	subresource string
	obj, old    registry.Object
	// namespace is n unless it is set.
	namespace string
	// want is a part of the refusal; empty if the write is admitted.
	want string
}

// check asks the plug-in about each attempt.
func check(t *testing.T, attempts map[string]attempt) {
	t.Helper()
	for name, c := range attempts {
		err := Plugin(Options{Objects: objects(), Authorizer: authorizer{}, VolumeHealth: true}).Mutate(t.Context(), c.attributes())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if err != nil && !kerrors.IsForbidden(err) && !kerrors.IsNotFound(err) {
			t.Errorf("%s: %T is not a refusal", name, err)
		}
	}
}

func (att *attempt) attributes() *admission.Attributes {
	a := &admission.Attributes{
		Operation: att.operation, Resource: att.resource, Subresource: att.subresource, Namespace: "n", Object: att.obj, Old: att.old,
		Requested: admission.Names{Resource: att.resource.WithVersion("v1")},
		User:      &request.User{Name: "system:node:a", Groups: []string{"system:nodes"}},
	}
	if att.namespace != "" {
		a.Namespace = att.namespace
	}
	if a.Name = "robot"; att.obj != nil && att.resource != accounts {
		a.Name = att.obj.GetName()
	} else if att.old != nil {
		a.Name = att.old.GetName()
	}
	return a
}

func TestPodsOfKubelets(t *testing.T) {
	changed := func(change func(*corev1.PodStatus)) *corev1.Pod {
		return pod("p", "a", func(p *corev1.Pod) { change(&p.Status) })
	}
	claimed := []corev1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: ptr.To("x")}}
	extended := &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"}
	eviction := func(name string) *policyv1.Eviction { return &policyv1.Eviction{ObjectMeta: meta(name)} }
	check(t, map[string]attempt{
		"delete own": {operation: admission.Delete, resource: pods, old: pod("p", "a", nil)},
		"delete other": {
			operation: admission.Delete, resource: pods, old: pod("p", "b", nil),
			want: `node "a" can only delete pods with spec.nodeName set to itself`,
		},
		"update": {
			operation: admission.Update, resource: pods, obj: pod("p", "a", nil), old: pod("p", "a", nil),
			want: `unexpected operation "UPDATE", node "a" can only create and delete mirror pods`,
		},
		"binding": {
			operation: admission.Create, resource: pods, subresource: "binding", obj: pod("p", "a", nil),
			want: `unexpected pod subresource "binding", only 'status' and 'eviction' are allowed`,
		},
		"status": {
			operation: admission.Update, resource: pods, subresource: "status",
			obj: changed(func(s *corev1.PodStatus) { s.Message = "x" }), old: pod("p", "a", nil),
		},
		"status of other": {
			operation: admission.Update, resource: pods, subresource: "status", obj: pod("p", "a", nil),
			old: pod("p", "b", nil), want: `node "a" can only update pod status for pods with spec.nodeName set to itself`,
		},
		"labels by status": {
			operation: admission.Update, resource: pods, subresource: "status",
			obj: pod("p", "a", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), old: pod("p", "a", nil),
			want: `node "a" cannot update labels through pod status`,
		},
		"claims by status": {
			operation: admission.Update, resource: pods, subresource: "status",
			obj: changed(func(s *corev1.PodStatus) { s.ResourceClaimStatuses = claimed }), old: pod("p", "a", nil),
			want: `node "a" cannot update resource claim statues`,
		},
		"extended claims": {
			operation: admission.Update, resource: pods, subresource: "status",
			obj: changed(func(s *corev1.PodStatus) { s.ExtendedResourceClaimStatus = extended }), old: pod("p", "a", nil),
			want: `node "a" cannot update extended resource claim status`,
		},
		"node allocatable claims": {
			operation: admission.Update, resource: pods, subresource: "status",
			obj: changed(func(s *corev1.PodStatus) {
				s.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "x"}}
			}),
			old: pod("p", "a", nil), want: `node "a" cannot update node allocatable resource claim statuses`,
		},
		"delete status": {
			operation: admission.Delete, resource: pods, subresource: "status", old: pod("p", "a", nil),
			want: `unexpected operation "DELETE"`,
		},
		"evict own": {operation: admission.Create, resource: pods, subresource: "eviction", obj: eviction("plain")},
		"evict other": {
			operation: admission.Create, resource: pods, subresource: "eviction", obj: eviction("other"),
			want: "node a can only evict pods with spec.nodeName set to itself",
		},
		"evict missing": {
			operation: admission.Create, resource: pods, subresource: "eviction", obj: eviction("none"),
			want: `pod "none" not found`,
		},
		"evict nameless": {
			operation: admission.Create, resource: pods, subresource: "eviction", obj: eviction(""),
			want: "could not determine pod from request data",
		},
	})
}

func TestMirrorPods(t *testing.T) {
	owner := func(change func(*metav1.OwnerReference)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.OwnerReferences[0]) }
	}
	volume := func(s corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: s}} }
	}
	projected := func(s corev1.VolumeProjection) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{}}, s},
			},
		})
	}
	const (
		reference = `node "a" can not create pods that reference `
		itself    = `node "a" can only create pods with an owner reference set to itself`
	)
	attempts := map[string]attempt{}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"good": {nil, ""},
		"not a mirror": {
			func(p *corev1.Pod) { p.Annotations = nil },
			`pod does not have "kubernetes.io/config.mirror" annotation, node "a" can only create mirror pods`,
		},
		"on another node": {
			func(p *corev1.Pod) { p.Spec.NodeName = "b" }, `node "a" can only create pods with spec.nodeName set to itself`,
		},
		"no owner": {func(p *corev1.Pod) { p.OwnerReferences = nil }, itself},
		"two owners": {
			func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, p.OwnerReferences[0]) },
			`node "a" can only create pods with a single owner reference set to itself`,
		},
		"owner is another":   {owner(func(r *metav1.OwnerReference) { r.Name = "b" }), itself},
		"owner of a kind":    {owner(func(r *metav1.OwnerReference) { r.Kind = "Pod" }), itself},
		"owner of a version": {owner(func(r *metav1.OwnerReference) { r.APIVersion = "v2" }), itself},
		"no controller": {
			owner(func(r *metav1.OwnerReference) { r.Controller = nil }),
			`node "a" can only create pods with a controller owner reference set to itself`,
		},
		"blocking": {
			owner(func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = ptr.To(true) }),
			`node "a" must not set blockOwnerDeletion on an owner reference`,
		},
		"other UID": {
			owner(func(r *metav1.OwnerReference) { r.UID = "old" }), "node a UID mismatch: expected old got node-a",
		},
		"account": {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "x" }, reference + "serviceaccounts"},
		"pull secret": {
			func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}} },
			reference + "secrets",
		},
		"resource claim": {
			func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}} },
			reference + "resourceclaims",
		},
		"config map": {
			volume(
				corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}},
				},
			),
			reference + "configmaps",
		},
		"unnamed config map": {
			volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}),
			reference + "configmaps (via configmap volumes)",
		},
		"unnamed secret": {
			volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}), reference + "secrets (via secret volumes)",
		},
		"CSI": {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}), reference + "csidrivers (via CSI volumes)"},
		"gluster": {
			volume(corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{}}),
			reference + "endpoints (via glusterFS volumes)",
		},
		"claim": {
			volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}),
			reference + "persistentvolumeclaims",
		},
		"ephemeral": {
			volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}),
			reference + "persistentvolumeclaims (via ephemeral volumes)",
		},
		"azure file": {
			volume(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{}}),
			reference + "secrets (via azureFile volumes)",
		},
		"host path": {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}), ""},
		"unknown": {
			volume(corev1.VolumeSource{}),
			`error checking mirror pod for API references: unknown volume type for volume  "v"`,
		},
		"projected config map": {
			projected(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}}),
			reference + "configmaps (via projected volumes)",
		},
		"projected secret": {
			projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{}}),
			reference + "secrets (via projected volumes)",
		},
		"projected token": {
			projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}),
			reference + "serviceaccounts (via projected volumes)",
		},
		"projected bundle": {
			projected(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}),
			reference + "clustertrustbundles",
		},
		"projected cert": {
			projected(corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}}),
			reference + "podcertificates",
		},
		"projected unknown": {
			projected(corev1.VolumeProjection{}),
			`error checking mirror pod for API references: unknown source for projected volume "v"`,
		},
	} {
		attempts[name] = attempt{operation: admission.Create, resource: pods, obj: mirror(c.change), want: c.want}
	}
	check(t, attempts)
}

func TestNodesOfKubelets(t *testing.T) {
	changed := func(change func(*corev1.Node)) *corev1.Node {
		n := newNode("a")
		change(n)
		return n
	}
	source := changed(func(n *corev1.Node) { n.Spec.ConfigSource = &corev1.NodeConfigSource{} })
	update := func(obj, old *corev1.Node, want string) attempt {
		return attempt{operation: admission.Update, resource: nodes, obj: obj, old: old, want: want}
	}
	check(t, map[string]attempt{
		"create own": {
			operation: admission.Create, resource: nodes,
			obj: newNode(
				"a", "kubernetes.io/hostname", "node.kubernetes.io/x", "x.kubelet.kubernetes.io/y", "example.com/x", "x",
			),
		},
		"create other": {
			operation: admission.Create, resource: nodes, obj: newNode("b"),
			want: `node "a" is not allowed to modify node "b"`,
		},
		"create labels": {
			operation: admission.Create, resource: nodes,
			obj: newNode("a", "node-role.kubernetes.io/x", "x.node-restriction.kubernetes.io/y", "k8s.io/z"),
			want: `node "a" is not allowed to set the following labels: k8s.io/z, node-role.kubernetes.io/x, ` +
				`x.node-restriction.kubernetes.io/y`,
		},
		"create with source": {
			operation: admission.Create, resource: nodes, obj: source,
			want: `node "a" is not allowed to create pods with a non-nil configSource`,
		},
		"delete other": {
			operation: admission.Delete, resource: nodes, old: newNode("b"),
			want: `node "a" is not allowed to modify node "b"`,
		},
		"delete own": {operation: admission.Delete, resource: nodes, old: newNode("a")},
		"status": {
			operation: admission.Update, resource: nodes, subresource: "status", obj: newNode("a"), old: newNode("a"),
		},
		"update":      update(newNode("a", "kubernetes.io/os"), newNode("a", "kubernetes.io/arch"), ""),
		"labels stay": update(newNode("a", "node-role.kubernetes.io/x"), newNode("a", "node-role.kubernetes.io/x"), ""),
		"adds label": update(
			newNode("a", "node-role.kubernetes.io/x"), newNode("a"),
			"is not allowed to modify labels: node-role.kubernetes.io/x",
		),
		"removes label": update(
			newNode("a"), newNode("a", "node-role.kubernetes.io/x"),
			"is not allowed to modify labels: node-role.kubernetes.io/x",
		),
		"taints": update(
			newNode("a"), changed(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }),
			`node "a" is not allowed to modify taints`,
		),
		"owners": update(
			newNode("a"), changed(func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }),
			`node "a" is not allowed to modify ownerReferences`,
		),
		"adds source": update(
			source, newNode("a"), `node "a" is not allowed to update configSource to a new non-nil configSource`,
		),
		"drops source": update(newNode("a"), source, ""),
	})
}

func TestTokensOfKubelets(t *testing.T) {
	token := func(pod string, audiences ...string) *authenticationv1.TokenRequest {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
		if pod != "" {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
				APIVersion: "v1", Kind: "Pod", Name: pod, UID: "uid-x",
			}
		}
		return r
	}
	noUID, oldUID := token("own", "projected"), token("own", "projected")
	noUID.Spec.BoundObjectRef.UID, oldUID.Spec.BoundObjectRef.UID = "", "old"
	const missing = `system:node:a is not authorized to request tokens for audience `
	attempts := map[string]attempt{}
	for name, c := range map[string]struct {
		request *authenticationv1.TokenRequest
		want    string
	}{
		"not bound": {token(""), "node requested token not bound to a pod"},
		"no UID":    {noUID, "node requested token with a pod binding without a uid"},
		"other UID": {
			oldUID,
			"the UID in the bound object reference (old) does not match the UID in record. The object might have been " +
				"deleted and then recreated",
		},
		"missing pod":         {token("none"), `pod "none" not found`},
		"pod elsewhere":       {token("other"), "node requested token bound to a pod scheduled on a different node"},
		"two audiences":       {token("own", "projected", "by-claim"), "node may only request 0 or 1 audiences"},
		"projected":           {token("own", "projected"), ""},
		"inline driver":       {token("own", "by-inline"), ""},
		"driver of a claim":   {token("own", "by-claim"), ""},
		"driver of ephemeral": {token("own", "by-ephemeral"), ""},
		"migrated claim":      {token("own", "by-disk"), ""},
		"migrated inline":     {token("own", "by-inline-disk"), ""},
		"authorized":          {token("plain", allowed), ""},
		"not authorized":      {token("plain", "x"), missing + `"x"`},
		"no audience":         {token("plain"), missing + `""`},
		"broken volumes": {
			token("broken", "x"),
			`error validating audience "x": [persistentvolumeclaim "none" not found, persistentvolume "" not found]`,
		},
	} {
		attempts[name] = attempt{
			operation: admission.Create, resource: accounts, subresource: "token", obj: c.request, want: c.want,
		}
	}
	attempts["an account"] = attempt{operation: admission.Create, resource: accounts, obj: &corev1.ServiceAccount{}}
	check(t, attempts)
}

func TestOtherObjectsOfKubelets(t *testing.T) {
	lease := func(name string) *coordinationv1.Lease { return &coordinationv1.Lease{ObjectMeta: meta(name)} }
	csi := func(name string) *storagev1.CSINode { return &storagev1.CSINode{ObjectMeta: meta(name)} }
	slice := func(node *string) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{NodeName: node}}
	}
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: meta("c")}
		change(c)
		return c
	}
	plain := claim(func(*corev1.PersistentVolumeClaim) {})
	grown := claim(func(c *corev1.PersistentVolumeClaim) {
		c.Kind, c.ResourceVersion = "PersistentVolumeClaim", "7"
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "x"}}
		c.Status.AllocatedResources = c.Status.Capacity
	})
	labelled := claim(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} })
	const leaseNode = "can only access node lease with the same name as the requesting node"
	const csiNode = "can only access CSINode with the same name as the requesting node"
	check(t, map[string]attempt{
		"lease": {operation: admission.Create, resource: leases, namespace: "kube-node-lease", obj: lease("a")},
		"lease elsewhere": {
			operation: admission.Create, resource: leases, obj: lease("a"),
			want: `can only access leases in the "kube-node-lease" system namespace`,
		},
		"lease of other": {
			operation: admission.Create, resource: leases, namespace: "kube-node-lease", obj: lease("b"), want: leaseNode,
		},
		"deletion of lease": {
			operation: admission.Delete, resource: leases, namespace: "kube-node-lease", old: lease("b"), want: leaseNode,
		},
		"CSINode": {operation: admission.Create, resource: csiNodes, obj: csi("a")},
		"status of a CSINode": {
			operation: admission.Update, resource: csiNodes, subresource: "status", obj: csi("a"), old: csi("a"),
		},
		"spec by status": {
			operation: admission.Update, resource: csiNodes, subresource: "status", obj: csi("a"),
			old:  &storagev1.CSINode{ObjectMeta: meta("a"), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "d"}}}},
			want: `node "a" is not allowed to modify CSINode spec via status`,
		},
		"CSINode of other": {operation: admission.Update, resource: csiNodes, obj: csi("b"), old: csi("b"), want: csiNode},
		"slice":            {operation: admission.Create, resource: resourceSlices, obj: slice(ptr.To("a"))},
		"slice of other": {
			operation: admission.Create, resource: resourceSlices, obj: slice(ptr.To("b")),
			want: "can only create ResourceSlice with the same NodeName as the requesting node",
		},
		"slice of all": {
			operation: admission.Delete, resource: resourceSlices, old: slice(nil),
			want: "can only delete ResourceSlice with the same NodeName as the requesting node",
		},
		"update of a slice": {
			operation: admission.Update, resource: resourceSlices, obj: slice(ptr.To("b")), old: slice(ptr.To("b")),
		},
		"serving certificate": {
			operation: admission.Create, resource: requests, obj: csr(t, "kubernetes.io/kubelet-serving", "system:node:a"),
		},
		"of another node": {
			operation: admission.Create, resource: requests,
			obj:  csr(t, "kubernetes.io/kube-apiserver-client-kubelet", "system:node:b"),
			want: "can only create a node CSR with CN=system:node:a",
		},
		"of another signer": {operation: admission.Create, resource: requests, obj: csr(t, "example.com/x", "b")},
		"not a request": {operation: admission.Create, resource: requests, obj: &certificatesv1.CertificateSigningRequest{
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "kubernetes.io/kubelet-serving"},
		}, want: "unable to parse csr: PEM block type must be CERTIFICATE REQUEST"},
		"claim": {
			operation: admission.Update, resource: claims, obj: plain, old: plain, want: "may only update PVC status",
		},
		"status of claim": {operation: admission.Update, resource: claims, subresource: "status", obj: grown, old: plain},
		"labels of claim": {operation: admission.Update, resource: claims, subresource: "status", obj: labelled, old: plain,
			want: `node "a" is not allowed to update fields other than status.quantity and status.conditions: ` +
				`{"metadata":{"labels":{"a":"b"}}}`},
		"another resource": {operation: admission.Create, resource: corev1.Resource("events"), obj: &corev1.Event{}},
	})
}

func TestOnlyKubeletsAreRestricted(t *testing.T) {
	c := attempt{operation: admission.Create, resource: nodes, obj: newNode("b")}
	for name, who := range map[string]struct {
		user *request.User
		want string
	}{
		"the server": {nil, ""},
		"a user":     {&request.User{Name: "ann"}, ""},
		"no group":   {&request.User{Name: "system:node:a"}, ""},
		"no name": {
			&request.User{Name: "system:node:", Groups: []string{"system:nodes"}},
			`nodes "b" is forbidden: could not determine node from user "system:node:"`,
		},
		"a kubelet": {
			&request.User{Name: "system:node:a", Groups: []string{"system:nodes"}},
			`nodes "b" is forbidden: node "a" is not allowed to modify node "b"`,
		},
	} {
		a := c.attributes()
		a.User = who.user
		err := Plugin(Options{Objects: objects(), Authorizer: authorizer{}, VolumeHealth: true}).Mutate(t.Context(), a)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != who.want {
			t.Errorf("%s: %q, want %q", name, got, who.want)
		}
	}
}

// TestPodCertificateRequestsOfKubelets creates PodCertificateRequests as the kubelet of node a.
func TestPodCertificateRequestsOfKubelets(t *testing.T) {
	stored := objects()
	stored[pods] = append(stored[pods], mirror(nil), pod("serving", "a", func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "robot"
		p.Spec.Volumes = []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{}, {PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/own"}}},
		}}}}
	}))
	stored[accounts] = []registry.Object{&corev1.ServiceAccount{ObjectMeta: meta("robot")}}
	for name, c := range map[string]struct {
		change func(*certificatesv1beta1.PodCertificateRequestSpec)
		code   int32
		want   string
	}{
		"own":            {change: func(*certificatesv1beta1.PodCertificateRequestSpec) {}},
		"allowed signer": {change: func(s *certificatesv1beta1.PodCertificateRequestSpec) { s.SignerName = "example.com/allowed" }},
		"another signer": {func(s *certificatesv1beta1.PodCertificateRequestSpec) { s.SignerName = "example.com/other" }, 403,
			`pod "n/serving" does not mount a podCertificate projected volume for signer "example.com/other"`},
		"another node": {func(s *certificatesv1beta1.PodCertificateRequestSpec) { s.NodeName = "b" }, 403,
			`PodCertificateRequest.Spec.NodeName="b", which is not the requesting node "a"`},
		"another UID of the node": {func(s *certificatesv1beta1.PodCertificateRequestSpec) { s.NodeUID = "x" }, 500,
			`PodCertificateRequest for pod "n/serving" names node UID "x", inconsistent with the running node ("node-a")`},
		"no pod": {func(s *certificatesv1beta1.PodCertificateRequestSpec) { s.PodName = "none" }, 500,
			`while retrieving pod "n/none" named in the PodCertificateRequest: pod "none" not found`},
		"another UID of the pod": {func(s *certificatesv1beta1.PodCertificateRequestSpec) { s.PodUID = "x" }, 500,
			`PodCertificateRequest for pod "n/serving" contains pod UID ("x") which differs from running pod "uid-x"`},
		"pod of another node": {func(s *certificatesv1beta1.PodCertificateRequestSpec) { s.PodName = "other" }, 403,
			`pod "n/other" is not running on node "a" named in the PodCertificateRequest`},
		"mirror pod": {func(s *certificatesv1beta1.PodCertificateRequestSpec) { s.PodName = "m" }, 403,
			`pod "n/m" is a mirror pod`},
		"another account": {func(s *certificatesv1beta1.PodCertificateRequestSpec) { s.ServiceAccountName = "x" }, 403,
			`PodCertificateRequest for pod "n/serving" contains serviceAccountName ("x") that differs from running pod ("robot")`},
		"another UID of the account": {
			func(s *certificatesv1beta1.PodCertificateRequestSpec) { s.ServiceAccountUID = "x" }, 500,
			`PodCertificateRequest for pod "n/serving" names service account UID "x", which differs from the running ` +
				`service account ("uid-x")`},
	} {
		r := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: meta("r")}
		r.Spec.NodeName, r.Spec.NodeUID, r.Spec.PodName, r.Spec.PodUID = "a", "node-a", "serving", "uid-x"
		r.Spec.ServiceAccountName, r.Spec.ServiceAccountUID = "robot", "uid-x"
		r.Spec.SignerName = "example.com/own"
		c.change(&r.Spec)
		try := attempt{operation: admission.Create, resource: podRequests, obj: r}
		err := Plugin(Options{Objects: stored, Authorizer: authorizer{}}).Mutate(t.Context(), try.attributes())
		var status kerrors.APIStatus
		switch {
		case c.want == "" && err == nil:
		case c.want == "" || !errors.As(err, &status) || status.Status().Code != c.code ||
			!strings.HasSuffix(status.Status().Message, c.want):
			t.Errorf("%s: %v, want %d %s", name, err, c.code, c.want)
		}
	}
}
