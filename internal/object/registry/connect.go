package registry

import (
	"context"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
)

// Connect declares a subresource whose requests are forwarded to a node, pod or service. Package rest serves it: it
// decodes the options, calls admission, and streams to the destination.
type Connect struct {
	// Methods are the HTTP methods that are served.
	Methods []string
	// Options decodes the options from the query. For a subresource that TakesPath they include the path.
	Options func(query url.Values) (runtime.Object, error)
	// TakesPath means that the rest of the request path after the subresource is forwarded. Options gets it as the
	// parameter "path".
	TakesPath bool
	// Reads means that the subresource only reads the object (pods/log): admission is not called, and the body of the
	// destination's response becomes the body of the response.
	Reads bool
	// NeedsCreate means that the permission to create the subresource is required for every method. A WebSocket begins
	// with a GET, but the permission to get must not allow running commands in a pod.
	NeedsCreate bool
	// Destination finds where a request goes. It returns nil if there is nothing to read yet; then the response is
	// 204. The client gets its errors.
	Destination func(ctx context.Context, c Cluster, r ConnectRequest) (*Destination, error)
}

// Allows reports whether a method is served.
func (c *Connect) Allows(method string) bool { return slices.Contains(c.Methods, method) }

// ConnectRequest is a request for a subresource with a Connect.
type ConnectRequest struct {
	// Name is the name in the path. For proxies it may have a scheme and a port: "https:name:port".
	Namespace, Name string
	// Options are the result of Connect.Options, possibly changed by admission.
	Options runtime.Object
}

// Protocol is the protocol between the server and a destination.
type Protocol int

const (
	// Forward forwards any request, also one for another protocol. Links in responses are changed so that they lead
	// through the proxy.
	Forward Protocol = iota
	// Upgrade forwards only requests for another protocol (SPDY, WebSocket).
	Upgrade
	// Read sends a GET and copies the body of the response.
	Read
)

// Destination is where a request is forwarded to.
type Destination struct {
	proxy.Target
	Protocol Protocol
	// Streams are the streams of a command. Unless it is nil, WebSocket requests of the protocol v5.channel.k8s.io are
	// translated to SPDY.
	Streams *Streams
	// Tunnel unpacks SPDY that a client sends inside of a WebSocket.
	Tunnel bool
	// Flush sends each part of a response of Read at once.
	Flush bool
	// Unverified means that Transport does not verify certificates, because the client has requested that.
	Unverified bool
}

// Streams are the streams of a command that runs in a container.
type Streams struct{ Stdin, Stdout, Stderr, TTY bool }

// Cluster finds and connects to destinations.
type Cluster interface {
	// Get returns the latest object of a resource in its storage version, or a NotFound error.
	Get(ctx context.Context, r schema.GroupResource, namespace, name string) (Object, error)
	// List returns the objects of a resource in a namespace, in its storage version.
	List(ctx context.Context, r schema.GroupResource, namespace string) ([]Object, error)
	// Kubelet returns how the kubelet of a node is reached.
	Kubelet(ctx context.Context, node string) (*Kubelet, error)
	// Resolve returns the addresses of a host. It fails if the host has none, or one that proxies must not connect to:
	// loopback, link-local, multicast and unspecified addresses.
	Resolve(ctx context.Context, host string) ([]string, error)
	// Direct connects to pods, and to ports of nodes other than the kubelet's. It does not verify certificates, because
	// their names are not known.
	Direct() *proxy.Transport
}

// Kubelet is the kubelet of a node.
type Kubelet struct {
	Host, Port string
	// Transport verifies the kubelet's certificate if the server has an authority for that, Unverified does not. Both
	// show the server's client certificate.
	Transport, Unverified *proxy.Transport
	// Pinned is Transport for requests whose addresses were resolved.
	Pinned *proxy.Transport
	// Features are the features in the status of the node.
	Features []string
}
