package core

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// errAddressNotAllowed refuses to connect to addresses that may stand for the machine of the server itself, or for what
// only that machine reaches.
var errAddressNotAllowed = kerrors.NewBadRequest("address not allowed")

// proxyMethods are the HTTP methods that proxies forward, streamMethods those by which connections to pods begin.
var (
	proxyMethods = []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead,
		http.MethodOptions,
	}
	streamMethods = []string{http.MethodGet, http.MethodPost}
)

// finder finds where a request is forwarded to.
type finder func(ctx context.Context, c registry.Cluster, r registry.ConnectRequest) (*registry.Destination, error)

// proxySubresource returns the subresource proxy. Its options are of a kind with the one field path.
func proxySubresource(kind string, options func(path string) runtime.Object, find finder) registry.Subresource {
	return registry.Subresource{
		Name: "proxy", GVK: corev1.SchemeGroupVersion.WithKind(kind), Verbs: proxyVerbs,
		Connect: &registry.Connect{
			Methods: proxyMethods, TakesPath: true, Destination: find,
			Options: func(query url.Values) (runtime.Object, error) { return options(query.Get("path")), nil },
		},
	}
}

// forwardTo returns a destination with a plain URL; without a scheme it is http. path.Join cleans the path and
// drops a slash at its end, which is added again, because servers tell "/metrics" and "/metrics/" apart.
func forwardTo(scheme, host, pathOption string, t *proxy.Transport, addresses []string) *registry.Destination {
	if scheme == "" {
		scheme = "http"
	}
	u := &url.URL{Scheme: scheme, Host: host}
	if pathOption != "" {
		if u.Path = path.Join(pathOption); strings.HasSuffix(pathOption, "/") && !strings.HasSuffix(u.Path, "/") {
			u.Path += "/"
		}
	}
	return &registry.Destination{Target: proxy.Target{URL: u, Transport: t, Addresses: addresses}}
}

// mayConnectTo reports whether an IP address is one that proxies may connect to.
func mayConnectTo(address string) bool {
	ip := netutils.ParseIPSloppy(address)
	return ip != nil && proxy.MayConnectTo(ip)
}

func nodeProxy() registry.Subresource {
	return proxySubresource("NodeProxyOptions",
		func(path string) runtime.Object { return &corev1.NodeProxyOptions{Path: path} }, findNode)
}

// findNode finds a node: its kubelet, or another port if the name has one.
// The name may be NODE, NODE:PORT, SCHEME:NODE:PORT or SCHEME:NODE: with an empty port. The port of the kubelet
// is always reached by TLS with the client certificate of this server, whatever the scheme says. The addresses
// are resolved and checked here, and the connection uses these same addresses: a second resolution could return
// another address, which was not checked.
func findNode(ctx context.Context, c registry.Cluster, r registry.ConnectRequest) (*registry.Destination, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(r.Name)
	if !ok {
		return nil, kerrors.NewBadRequest("invalid node request " + strconv.Quote(r.Name))
	}
	kubelet, err := c.Kubelet(ctx, name)
	if err != nil {
		return nil, err
	}
	addresses, err := c.Resolve(ctx, kubelet.Host)
	if err != nil {
		return nil, kerrors.NewBadRequest(err.Error())
	}
	transport := c.Direct()
	if port == "" || port == kubelet.Port {
		scheme, port, transport = "https", kubelet.Port, kubelet.Pinned
	}
	for i, a := range addresses {
		addresses[i] = net.JoinHostPort(a, port)
	}
	host := net.JoinHostPort(kubelet.Host, port)
	return forwardTo(scheme, host, r.Options.(*corev1.NodeProxyOptions).Path, transport, addresses), nil
}
