package node

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// kind is the kind of an object that the graph knows.
type kind uint8

const (
	pod kind = iota
	secret
	configMap
	claim // PersistentVolumeClaim
	volume
	resourceClaim
	serviceAccount
	attachment         // VolumeAttachment
	slice              // ResourceSlice
	certificateRequest // PodCertificateRequest
)

// object identifies one object. The namespace is empty for cluster-scoped kinds.
type object struct {
	kind            kind
	namespace, name string
}

// Graph knows which objects a node needs, because of the pods that run on it and because of
// its VolumeAttachments, ResourceSlices and PodCertificateRequests. Everything that a pod refers to is related to the
// pod's node. A PersistentVolume is related to the nodes that its claim is related to, and so
// are the secrets that nodes need to mount that volume. A Graph may be used concurrently.
type Graph struct {
	mu sync.RWMutex // guards what follows
	// nodes counts, by object and node name, the owners that relate the object to the node.
	nodes map[object]map[string]int
	// owners has the references of each pod, attachment, slice or certificate request.
	owners map[object]nodeReferences
	// claims has the claims that volumes are bound to, by the name of the volume.
	claims map[string]object
	// volumes has, for each secret, the names of the volumes that need it.
	volumes map[object]map[string]bool
	// secrets has the secrets that volumes need, by the name of the volume.
	secrets map[string][]object
}

// nodeReferences are the objects that one owner relates to a node.
type nodeReferences struct {
	node string
	to   []object
}

// NewGraph returns a Graph without objects.
func NewGraph() *Graph {
	return &Graph{
		nodes: map[object]map[string]int{}, owners: map[object]nodeReferences{}, claims: map[string]object{},
		volumes: map[object]map[string]bool{}, secrets: map[string][]object{},
	}
}

// Related reports whether the node needs the object.
func (g *Graph) Related(node string, o object) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.nodes[o][node] > 0 {
		return true
	}
	switch o.kind {
	case volume:
		return o.namespace == "" && g.volumeRelated(node, o.name)
	case secret:
		for name := range g.volumes[o] {
			if g.volumeRelated(node, name) {
				return true
			}
		}
	}
	return false
}

func (g *Graph) volumeRelated(node, name string) bool {
	c, ok := g.claims[name]
	return ok && g.nodes[c][node] > 0
}

// SetPod records the objects that a pod refers to. A pod without a node has no relations.
func (g *Graph) SetPod(p *corev1.Pod) {
	owner := object{pod, p.Namespace, p.Name}
	if p.Spec.NodeName == "" {
		g.Delete(owner)
	} else {
		g.set(owner, p.Spec.NodeName, append(podReferences(p), owner))
	}
}

// SetNode records the node of an attachment, a slice or a certificate request; "" means no node.
func (g *Graph) SetNode(o object, node string) {
	if node == "" {
		g.Delete(o)
	} else {
		g.set(o, node, []object{o})
	}
}

// Delete removes a pod, an attachment, a slice or a certificate request.
func (g *Graph) Delete(owner object) { g.set(owner, "", nil) }

func (g *Graph) set(owner object, node string, to []object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.owners[owner]
	for _, o := range old.to {
		counts := g.nodes[o]
		if counts[old.node]--; counts[old.node] <= 0 {
			delete(counts, old.node)
		}
		if len(counts) == 0 {
			delete(g.nodes, o)
		}
	}
	if len(to) == 0 {
		delete(g.owners, owner)
		return
	}
	g.owners[owner] = nodeReferences{node, to}
	for _, o := range to {
		if g.nodes[o] == nil {
			g.nodes[o] = map[string]int{}
		}
		g.nodes[o][node]++
	}
}

// SetVolume records the claim that a volume is bound to, and the secrets that nodes need for
// it.
func (g *Graph) SetVolume(v *corev1.PersistentVolume) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removeVolume(v.Name)
	ref := v.Spec.ClaimRef
	if ref == nil {
		return
	}
	g.claims[v.Name] = object{claim, ref.Namespace, ref.Name}
	needs := volumeSecrets(v)
	if len(needs) == 0 {
		return
	}
	g.secrets[v.Name] = needs
	for _, s := range needs {
		if g.volumes[s] == nil {
			g.volumes[s] = map[string]bool{}
		}
		g.volumes[s][v.Name] = true
	}
}

// DeleteVolume removes a volume.
func (g *Graph) DeleteVolume(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removeVolume(name)
}

func (g *Graph) removeVolume(name string) {
	delete(g.claims, name)
	for _, s := range g.secrets[name] {
		if delete(g.volumes[s], name); len(g.volumes[s]) == 0 {
			delete(g.volumes, s)
		}
	}
	delete(g.secrets, name)
}

// retain removes the owners of kind k that are not in the set there, or the volumes if k is volume.
func (g *Graph) retain(k kind, there map[object]bool) {
	g.mu.RLock()
	var gone []object
	if k == volume {
		for name := range g.claims {
			if o := (object{volume, "", name}); !there[o] {
				gone = append(gone, o)
			}
		}
	} else {
		for o := range g.owners {
			if o.kind == k && !there[o] {
				gone = append(gone, o)
			}
		}
	}
	g.mu.RUnlock()
	for _, o := range gone {
		if k == volume {
			g.DeleteVolume(o.name)
		} else {
			g.Delete(o)
		}
	}
}
