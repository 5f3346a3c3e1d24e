package node

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// kind is the kind of an object that a node may have to do with.
type kind uint8

const (
	pod kind = iota
	secret
	configMap
	claim // PersistentVolumeClaim
	volume
	resourceClaim
	serviceAccount
	attachment // VolumeAttachment
	slice      // ResourceSlice
)

// object is one object; those of the cluster have no namespace.
type object struct {
	kind            kind
	namespace, name string
}

// Graph knows which objects the pods of a node, and the node itself, need. What a
// pod refers to is related to the pod's node; a volume to the nodes of its claim,
// and so are the secrets that the volume needs there. It is used concurrently.
type Graph struct {
	mu sync.RWMutex // guards what follows
	// nodes counts the pods, by node, through which an object is related to it.
	nodes map[object]map[string]int
	// owners are the references that each pod, attachment or slice has made.
	owners map[object]edges
	// claims are the claims that volumes are bound to.
	claims map[string]object
	// volumes are those that need a secret.
	volumes map[object]map[string]bool
	// secrets are what each volume needs.
	secrets map[string][]object
}

// edges are the objects that one owner relates to a node.
type edges struct {
	node string
	to   []object
}

// NewGraph returns a Graph without objects.
func NewGraph() *Graph {
	return &Graph{
		nodes: map[object]map[string]int{}, owners: map[object]edges{}, claims: map[string]object{},
		volumes: map[object]map[string]bool{}, secrets: map[string][]object{},
	}
}

// Related says whether an object has to do with a node.
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

// SetPod notes what a pod needs. A pod without a node needs nothing yet.
func (g *Graph) SetPod(p *corev1.Pod) {
	owner := object{pod, p.Namespace, p.Name}
	if p.Spec.NodeName == "" {
		g.set(owner, "", nil)
		return
	}
	g.set(owner, p.Spec.NodeName, append(podReferences(p), owner))
}

// SetOwn notes the node that an attachment or slice is of, "" for none.
func (g *Graph) SetOwn(o object, node string) {
	if node == "" {
		g.set(o, "", nil)
		return
	}
	g.set(o, node, []object{o})
}

// Delete forgets a pod, an attachment or a slice.
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
	g.owners[owner] = edges{node, to}
	for _, o := range to {
		if g.nodes[o] == nil {
			g.nodes[o] = map[string]int{}
		}
		g.nodes[o][node]++
	}
}

// SetVolume notes the claim that a volume is bound to and the secrets that nodes
// need for it.
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

// DeleteVolume forgets a volume.
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

// retain forgets the owners of a kind (or the volumes) that are not in there.
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
