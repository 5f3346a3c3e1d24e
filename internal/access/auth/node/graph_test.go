package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// twin finds relations by looking at all objects.
type twin struct {
	pods    map[object]*corev1.Pod
	volumes map[string]*corev1.PersistentVolume
	own     map[object]string
}

func (t *twin) related(node string, o object) bool {
	if n, ok := t.own[o]; ok && n == node {
		return true
	}
	for key, p := range t.pods {
		if p.Spec.NodeName == node && (key == o || slices.Contains(podReferences(p), o)) {
			return true
		}
	}
	for name, v := range t.volumes {
		if v.Spec.ClaimRef == nil || o != (object{volume, "", name}) && !slices.Contains(volumeSecrets(v), o) {
			continue
		}
		if t.related(node, object{claim, v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name}) {
			return true
		}
	}
	return false
}

func randomPod(r *rand.Rand, namespace, name string) *corev1.Pod {
	letter := func() string { return string(rune('a' + r.IntN(3))) }
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.NodeName = []string{"", "n1", "n2"}[r.IntN(3)]
	p.Spec.ServiceAccountName = letter()
	if r.IntN(5) == 0 {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	for range r.IntN(4) {
		v := corev1.Volume{Name: letter()}
		switch r.IntN(4) {
		case 0:
			v.Secret = &corev1.SecretVolumeSource{SecretName: letter()}
		case 1:
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: letter()}}
		case 2:
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: letter()}
		case 3:
			v.Ephemeral = &corev1.EphemeralVolumeSource{}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	return p
}

func randomVolume(r *rand.Rand, name string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	letter := func() string { return string(rune('a' + r.IntN(3))) }
	if r.IntN(4) > 0 {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns" + letter(), Name: letter()}
	}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		NodeStageSecretRef:         &corev1.SecretReference{Namespace: "nsa", Name: letter()},
		ControllerPublishSecretRef: &corev1.SecretReference{Namespace: "nsa", Name: "controller"},
	}
	return v
}

func checkAgainstTwin(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	g := NewGraph()
	tw := &twin{map[object]*corev1.Pod{}, map[string]*corev1.PersistentVolume{}, map[object]string{}}
	for step := range 300 {
		name, namespace := fmt.Sprint("x", r.IntN(4)), "ns"+string(rune('a'+r.IntN(2)))
		gone := r.IntN(3) == 0
		switch key := (object{pod, namespace, name}); r.IntN(3) {
		case 0:
			if gone {
				g.Delete(key)
				delete(tw.pods, key)
				break
			}
			tw.pods[key] = randomPod(r, namespace, name)
			g.SetPod(tw.pods[key])
		case 1:
			if gone {
				g.DeleteVolume(name)
				delete(tw.volumes, name)
				break
			}
			tw.volumes[name] = randomVolume(r, name)
			g.SetVolume(tw.volumes[name])
		case 2:
			key := object{attachment, "", name}
			tw.own[key] = []string{"", "n1", "n2"}[r.IntN(3)]
			g.SetNode(key, tw.own[key])
		}
		for _, node := range []string{"n1", "n2", "n3"} {
			for k := pod; k <= slice; k++ {
				for _, ns := range []string{"", "nsa", "nsb"} {
					for _, n := range []string{"a", "b", "x1-a", "x1", "x2", "controller"} {
						o := object{k, ns, n}
						if got, want := g.Related(node, o), tw.related(node, o); got != want {
							t.Fatalf("seed %d step %d: %s and %v: %v, want %v", seed, step, node, o, got, want)
						}
					}
				}
			}
		}
	}
	for key := range tw.pods {
		g.Delete(key)
	}
	for name := range tw.volumes {
		g.DeleteVolume(name)
	}
	for key := range tw.own {
		g.Delete(key)
	}
	if n := len(g.nodes) + len(g.owners) + len(g.claims) + len(g.volumes) + len(g.secrets); n > 0 {
		t.Fatalf("seed %d: %d entries are left", seed, n)
	}
}

func TestGraphAgainstTwin(t *testing.T) {
	for seed := range uint64(12) {
		checkAgainstTwin(t, seed)
	}
}

func FuzzGraph(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(checkAgainstTwin)
}

// TestEveryReferenceOfAPodCounts names one secret or config map in each place of a pod that can name one.
func TestEveryReferenceOfAPodCounts(t *testing.T) {
	local := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	container := func(prefix string) corev1.Container {
		return corev1.Container{
			EnvFrom: []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *local(prefix + "-envfrom")}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: *local(prefix + "-envfrom")}},
			},
			Env: []corev1.EnvVar{
				{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: *local(prefix +
					"-env")}}},
				{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: *local(prefix +
					"-env")}}},
			},
		}
	}
	source := func(s corev1.VolumeSource) corev1.Volume { return corev1.Volume{Name: "v", VolumeSource: s} }
	claimName := "claim"
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{
		NodeName: "n", ServiceAccountName: "sa",
		ImagePullSecrets: []corev1.LocalObjectReference{*local("pull")},
		InitContainers:   []corev1.Container{container("init")},
		Containers:       []corev1.Container{container("main")},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(
			container("ephemeral"))}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "own", ResourceClaimName: &claimName}, {Name: "made"},
			{Name: "pending"}},
		Volumes: []corev1.Volume{
			source(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure"}}),
			source(corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: local("ceph")}}),
			source(corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{SecretRef: local("cinder")}}),
			source(corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{SecretRef: local("flex")}}),
			source(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: local("rbd")}}),
			source(corev1.VolumeSource{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: local("scaleio")}}),
			source(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: local("iscsi")}}),
			source(corev1.VolumeSource{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: local("storageos")}}),
			source(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: local("csi")}}),
			source(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}),
			source(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: *local("volume")}}),
			source(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}),
			source(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}),
			source(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: *local("projected")}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: *local("projected")}},
			}}}),
		},
	}}
	made := "made-of-template"
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "made", ResourceClaimName: &made},
		{Name: "pending"}}
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}
	want := map[kind][]string{
		secret: {
			"pull", "init-envfrom", "init-env", "main-envfrom", "main-env", "ephemeral-envfrom", "ephemeral-env", "azure",
			"ceph", "cinder", "flex",
			"rbd", "scaleio", "iscsi", "storageos", "csi", "volume", "projected",
		},
		configMap: {"init-envfrom", "init-env", "main-envfrom", "main-env", "ephemeral-envfrom", "ephemeral-env",
			"volume", "projected"},
		claim:          {"data", "p-v"},
		resourceClaim:  {"claim", "made-of-template", "extended"},
		serviceAccount: {"sa"},
		pod:            {"p"},
	}
	g := NewGraph()
	g.SetPod(p)
	total := 0
	for k, names := range want {
		for _, name := range names {
			total++
			if !g.Related("n", object{k, "ns", name}) {
				t.Errorf("kind %d %s is not related", k, name)
			}
			if g.Related("n", object{k, "other", name}) || g.Related("other", object{k, "ns", name}) {
				t.Errorf("kind %d %s is related elsewhere", k, name)
			}
		}
	}
	if len(g.nodes) != total {
		t.Errorf("%d objects are related, want %d", len(g.nodes), total)
	}
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	g.SetPod(p)
	if len(g.nodes) != 1 || !g.Related("n", object{pod, "ns", "p"}) {
		t.Errorf("a mirror pod relates %d objects", len(g.nodes))
	}
}

func TestVolumeSecretsExcludeControllerSecrets(t *testing.T) {
	ref := func(namespace, name string) *corev1.SecretReference {
		return &corev1.SecretReference{Namespace: namespace, Name: name}
	}
	own := "own"
	for name, c := range map[string]struct {
		source corev1.PersistentVolumeSource
		want   []object
	}{
		"azure": {corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s"}},
			[]object{{secret, "claims", "s"}}},
		"azure elsewhere": {corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s",
			SecretNamespace: &own}}, []object{{secret, "own", "s"}}},
		"ceph": {corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: ref("", "s")}},
			[]object{{secret, "claims", "s"}}},
		"cinder": {corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{SecretRef: ref("own", "s")}},
			[]object{{secret, "own", "s"}}},
		"flex": {corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{SecretRef: ref("own",
			"s")}}, []object{{secret, "own", "s"}}},
		"rbd": {corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{SecretRef: ref("", "s")}},
			[]object{{secret, "claims", "s"}}},
		"scaleio": {corev1.PersistentVolumeSource{ScaleIO: &corev1.ScaleIOPersistentVolumeSource{SecretRef: ref("", "s")}},
			[]object{{secret, "claims", "s"}}},
		"iscsi": {corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{SecretRef: ref("", "s")}},
			[]object{{secret, "claims", "s"}}},
		"storageos": {corev1.PersistentVolumeSource{
			StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{Namespace: "own", Name: "s"}}},
			[]object{{secret, "own", "s"}}},
		"csi": {corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			ControllerPublishSecretRef: ref("own", "controller"), ControllerExpandSecretRef: ref("own", "controller"),
			NodePublishSecretRef: ref("own", "publish"), NodeStageSecretRef: ref("own", "stage"),
			NodeExpandSecretRef: ref("own", "expand"),
		}}, []object{{secret, "own", "publish"}, {secret, "own", "stage"}, {secret, "own", "expand"}}},
	} {
		v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: c.source,
			ClaimRef: &corev1.ObjectReference{Namespace: "claims", Name: "c"}}}
		if got := volumeSecrets(v); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
