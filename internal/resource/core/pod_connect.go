package core

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// websocketsOfKubelet is the feature of nodes whose kubelet takes the WebSocket requests of clients unchanged.
const websocketsOfKubelet = "ExtendWebSocketsToKubelet"

func podProxy() registry.Subresource {
	return proxySubresource("PodProxyOptions",
		func(path string) runtime.Object { return &corev1.PodProxyOptions{Path: path} }, findPod)
}

// findPod finds the address of a pod for pods/proxy. If the requested name has no port, the first port of a container is
// used, or else the default port of the scheme.
// It uses the first address of the pod, in clusters with both IP families too.
func findPod(ctx context.Context, c registry.Cluster, r registry.ConnectRequest) (*registry.Destination, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(r.Name)
	if !ok {
		return nil, kerrors.NewBadRequest("invalid pod request " + strconv.Quote(r.Name))
	}
	pod, err := podOf(ctx, c, r.Namespace, name)
	if err != nil {
		return nil, err
	}
	if port == "" {
		port = firstPort(pod)
	}
	var ip string
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	if !mayConnectTo(ip) {
		return nil, errAddressNotAllowed
	}
	host := ip
	switch {
	case port != "":
		host = net.JoinHostPort(ip, port)
	case strings.Contains(ip, ":"):
		host = "[" + ip + "]"
	}
	return forwardTo(scheme, host, r.Options.(*corev1.PodProxyOptions).Path, c.Direct(), nil), nil
}

func firstPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

func podOf(ctx context.Context, c registry.Cluster, namespace, name string) (*corev1.Pod, error) {
	obj, err := c.Get(ctx, corev1.Resource("pods"), namespace, name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// containerOf returns the name of the container that a request means. Without a name it is the only one of the pod.
// Init containers and ephemeral containers have to be named. The annotation
// kubectl.kubernetes.io/default-container is not used here: kubectl reads it and sends a name.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var names []string
	eachContainer(&pod.Spec, func(c *corev1.Container) { names = append(names, c.Name) })
	switch {
	case name != "" && slices.Contains(names, name):
		return name, nil
	case name != "":
		return "", kerrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	case len(pod.Spec.Containers) == 1:
		return pod.Spec.Containers[0].Name, nil
	case len(pod.Spec.Containers) == 0:
		return "", kerrors.NewBadRequest("a container name must be specified for pod " + pod.Name)
	}
	return "", kerrors.NewBadRequest(fmt.Sprintf(
		"a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
}

// kubeletURL returns a URL of the kubelet with the path /ELEMENT/ELEMENT...
// For example, a command has the path /exec/NAMESPACE/POD/CONTAINER, and a log
// /containerLogs/NAMESPACE/POD/CONTAINER.
func kubeletURL(k *registry.Kubelet, query url.Values, elements ...string) *url.URL {
	return &url.URL{
		Scheme: "https", Host: net.JoinHostPort(k.Host, k.Port), Path: "/" + strings.Join(elements, "/"),
		RawQuery: query.Encode(),
	}
}

// streamSubresource returns a subresource that opens a connection to a pod.
func streamSubresource(
	gates *PodGates, name, kind string, options func(url.Values) (runtime.Object, error), find finder,
) registry.Subresource {
	return registry.Subresource{
		Name: name, GVK: corev1.SchemeGroupVersion.WithKind(kind), Verbs: streamVerbs,
		Connect: &registry.Connect{Methods: streamMethods, NeedsCreate: gates.streamsNeedCreate, Options: options, Destination: find},
	}
}

// podExec runs a command. Each part of the command is a value of its own in the query: command=ls&command=-l.
func (g *PodGates) podExec() registry.Subresource {
	return streamSubresource(g, "exec", "PodExecOptions",
		func(query url.Values) (runtime.Object, error) {
			o := &corev1.PodExecOptions{Container: query.Get("container"), Command: query["command"]}
			o.Stdin, o.Stdout, o.Stderr, o.TTY = streamOptions(query)
			return o, nil
		},
		func(ctx context.Context, c registry.Cluster, r registry.ConnectRequest) (*registry.Destination, error) {
			o := r.Options.(*corev1.PodExecOptions)
			streams := &registry.Streams{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}
			return g.findCommand(ctx, c, r, "exec", o.Container, streams, o.Command)
		})
}

func (g *PodGates) podAttach() registry.Subresource {
	return streamSubresource(g, "attach", "PodAttachOptions",
		func(query url.Values) (runtime.Object, error) {
			o := &corev1.PodAttachOptions{Container: query.Get("container")}
			o.Stdin, o.Stdout, o.Stderr, o.TTY = streamOptions(query)
			return o, nil
		},
		func(ctx context.Context, c registry.Cluster, r registry.ConnectRequest) (*registry.Destination, error) {
			o := r.Options.(*corev1.PodAttachOptions)
			streams := &registry.Streams{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}
			return g.findCommand(ctx, c, r, "attach", o.Container, streams, nil)
		})
}

func streamOptions(query url.Values) (stdin, stdout, stderr, tty bool) {
	return boolOption(query, "stdin"), boolOption(query, "stdout"), boolOption(query, "stderr"), boolOption(query, "tty")
}

// boolOption returns an option that is true unless it is missing, "0" or "false".
// So an empty value is true: "?stdin" and "?stdin=" are the same as "?stdin=true".
func boolOption(query url.Values, name string) bool {
	values := query[name]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// findCommand finds the kubelet that runs a command in a container, or that attaches to one.
func (g *PodGates) findCommand(
	ctx context.Context, c registry.Cluster, r registry.ConnectRequest, verb, container string,
	streams *registry.Streams, command []string,
) (*registry.Destination, error) {
	pod, err := podOf(ctx, c, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	if container, err = containerOf(pod, container); err != nil {
		return nil, err
	}
	kubelet, err := kubeletOf(ctx, c, pod)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	for name, set := range map[string]bool{
		corev1.ExecStdinParam: streams.Stdin, corev1.ExecStdoutParam: streams.Stdout, corev1.ExecStderrParam: streams.Stderr,
		corev1.ExecTTYParam: streams.TTY,
	} {
		if set {
			query.Set(name, "1")
		}
	}
	if len(command) > 0 {
		query["command"] = command
	}
	d := &registry.Destination{
		Target: proxy.Target{
			URL: kubeletURL(kubelet, query, verb, pod.Namespace, pod.Name, container), Transport: kubelet.Transport,
		},
		Protocol: registry.Upgrade,
	}
	// The connection to the kubelet uses SPDY: the kubelet does not take WebSockets, or the gate is off. So this
	// server translates the WebSocket of a client.
	if !g.takesWebSockets(kubelet) {
		d.Streams = streams
	}
	return d, nil
}

// takesWebSockets reports whether a kubelet gets the WebSockets of clients unchanged.
func (g *PodGates) takesWebSockets(k *registry.Kubelet) bool {
	return g.kubeletWebSockets && slices.Contains(k.Features, websocketsOfKubelet)
}

// kubeletOf returns the kubelet that runs a pod.
func kubeletOf(ctx context.Context, c registry.Cluster, pod *corev1.Pod) (*registry.Kubelet, error) {
	if pod.Spec.NodeName == "" {
		return nil, kerrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return c.Kubelet(ctx, pod.Spec.NodeName)
}

func (g *PodGates) podPortForward() registry.Subresource {
	return streamSubresource(g, "portforward", "PodPortForwardOptions",
		func(query url.Values) (runtime.Object, error) {
			o := &corev1.PodPortForwardOptions{}
			if values, ok := query["ports"]; ok {
				if err := metav1.Convert_Slice_string_To_Slice_int32(&values, &o.Ports, nil); err != nil {
					return nil, err
				}
			}
			return o, nil
		}, g.findPorts)
}

// findPorts finds the kubelet that forwards to ports of a pod.
func (g *PodGates) findPorts(ctx context.Context, c registry.Cluster, r registry.ConnectRequest) (*registry.Destination, error) {
	pod, err := podOf(ctx, c, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	kubelet, err := kubeletOf(ctx, c, pod)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	ports := declare.Texts(r.Options.(*corev1.PodPortForwardOptions).Ports,
		func(p int32) string { return strconv.Itoa(int(p)) })
	if len(ports) > 0 {
		query.Set(corev1.PortHeader, strings.Join(ports, ","))
	}
	return &registry.Destination{
		Target: proxy.Target{
			URL: kubeletURL(kubelet, query, "portForward", pod.Namespace, pod.Name), Transport: kubelet.Transport,
		},
		Protocol: registry.Upgrade, Tunnel: !g.takesWebSockets(kubelet),
	}, nil
}

func podLog() registry.Subresource {
	return registry.Subresource{Name: "log", Verbs: []string{"get"}, Connect: &registry.Connect{
		Methods: []string{http.MethodGet}, Reads: true, Options: logOptions, Destination: findLog,
	}}
}

// logOptions decodes the options of a log from the query.
// If an option is there more than once, its first value counts, as in kube-apiserver.
func logOptions(query url.Values) (runtime.Object, error) {
	o := &corev1.PodLogOptions{
		Container: query.Get("container"), Follow: boolOption(query, "follow"), Previous: boolOption(query, "previous"),
		Timestamps:                   boolOption(query, "timestamps"),
		InsecureSkipTLSVerifyBackend: boolOption(query, "insecureSkipTLSVerifyBackend"),
	}
	if values := query["sinceSeconds"]; len(values) > 0 {
		if err := runtime.Convert_Slice_string_To_Pointer_int64(&values, &o.SinceSeconds, nil); err != nil {
			return nil, err
		}
	}
	if values := query["sinceTime"]; len(values) > 0 {
		if err := metav1.Convert_Slice_string_To_Pointer_v1_Time(&values, &o.SinceTime, nil); err != nil {
			return nil, err
		}
	}
	for name, value := range map[string]**int64{"tailLines": &o.TailLines, "limitBytes": &o.LimitBytes} {
		if values := query[name]; len(values) > 0 {
			if err := runtime.Convert_Slice_string_To_Pointer_int64(&values, value, nil); err != nil {
				return nil, err
			}
		}
	}
	if values := query["stream"]; len(values) > 0 {
		o.Stream = &values[0]
	}
	return o, nil
}

// validateLogOptions returns what is wrong with the options of a log.
// A limit of 0 lines is valid and gives an empty log; a limit of 0 bytes is not valid.
func validateLogOptions(o *corev1.PodLogOptions) field.ErrorList {
	var errs field.ErrorList
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""),
			"at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	if o.Stream != nil { // a field of the feature PodLogsQuerySplitStreams
		errs = append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified"))
	}
	return errs
}

// findLog finds the kubelet that has the log of a container. It returns nil for a pod that runs nowhere yet.
func findLog(ctx context.Context, c registry.Cluster, r registry.ConnectRequest) (*registry.Destination, error) {
	o := r.Options.(*corev1.PodLogOptions)
	if errs := validateLogOptions(o); len(errs) > 0 {
		return nil, kerrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), r.Name, errs)
	}
	pod, err := podOf(ctx, c, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	container, err := containerOf(pod, o.Container)
	// A client that asks for the log of a pod right after creating it gets an empty log and no error.
	if err != nil || pod.Spec.NodeName == "" {
		return nil, err
	}
	kubelet, err := c.Kubelet(ctx, pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	// A client may ask not to verify the certificate of the kubelet, to read logs when that certificate has
	// expired (KEP-1295).
	transport := kubelet.Transport
	if o.InsecureSkipTLSVerifyBackend {
		transport = kubelet.Unverified
	}
	u := kubeletURL(kubelet, logQuery(o), "containerLogs", pod.Namespace, pod.Name, container)
	return &registry.Destination{
		Target: proxy.Target{URL: u, Transport: transport}, Protocol: registry.Read, Flush: o.Follow,
		Unverified: o.InsecureSkipTLSVerifyBackend,
	}, nil
}

// logQuery returns the options as the kubelet takes them.
func logQuery(o *corev1.PodLogOptions) url.Values {
	query := url.Values{}
	for name, set := range map[string]bool{
		"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps,
	} {
		if set {
			query.Set(name, "true")
		}
	}
	for name, value := range map[string]*int64{
		"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes,
	} {
		if value != nil {
			query.Set(name, strconv.FormatInt(*value, 10))
		}
	}
	if o.SinceTime != nil {
		query.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	return query
}
