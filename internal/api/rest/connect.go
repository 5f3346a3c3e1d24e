package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/machinery/proxy/websocket"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// connector serves subresources whose requests are forwarded to nodes, pods and services.
type connector struct {
	formats        negotiate.Formats
	writes         *write.Pipeline
	authorizer     authz.Authorizer // nil allows everything
	cluster        registry.Cluster // nil: there is no connection to nodes
	bytesPerSecond int64            // Options.ConnectionBytesPerSecond
	observer       *ConnectMetrics
}

// connect serves a request for a subresource whose requests are forwarded.
func (h *Handler) connect(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	return h.connector.serve(w, r, info, s)
}

// serve serves a subresource whose requests are forwarded: its steps are the options, admission, the permission to
// create, the destination, and the forwarding.
func (cn connector) serve(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	sub := s.Kind.Subresource(info.Subresource)
	c := sub.Connect
	if c.Reads {
		if _, err := cn.formats.Response(r, s.form.endpoint(negotiate.Endpoint{Transforms: true, Text: true})); err != nil {
			return err
		}
	} else if r.URL.Query().Has("dryRun") {
		// A command cannot be run without its effects. Any value is refused, also an empty one.
		return kerrors.NewBadRequest("dryRun is not supported")
	}
	options, err := c.Options(connectQuery(r, info, c))
	if err != nil {
		return kerrors.NewBadRequest(err.Error())
	}
	asked := registry.ConnectRequest{Namespace: info.Namespace, Name: info.Name, Options: options}
	if !c.Reads {
		if asked.Options, err = cn.writes.AdmitConnect(r.Context(), s.Served, sub, asked); err != nil {
			return err
		}
	}
	if c.NeedsCreate {
		if err := cn.mayCreate(r.Context(), info); err != nil {
			return err
		}
	}
	if cn.cluster == nil {
		return kerrors.NewServiceUnavailable("this server has no connection to nodes")
	}
	d, err := c.Destination(r.Context(), cn.cluster, asked)
	if err != nil {
		return connectError(s.gr, err)
	}
	if d == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	r.Header.Del("Audit-Id") // which a filter has added
	switch d.Protocol {
	case registry.Read:
		return cn.readFrom(w, r, info, d)
	case registry.Upgrade:
		cn.stream(w, r, info, d)
	default:
		cn.forward(w, r, d)
	}
	return nil
}

// connectQuery returns the query from which the options are decoded. If the subresource takes a path, it sets the
// parameter path to the path below the subresource. A slash at the end is kept: /proxy/a/ and /proxy/a may be
// different pages of the server behind the proxy.
func connectQuery(r *http.Request, info *request.Info, c *registry.Connect) url.Values {
	query := r.URL.Query()
	if !c.TakesPath {
		return query
	}
	below := info.Rest
	if below != "" && !strings.HasPrefix(below, "/") {
		below = "/" + below
	}
	if strings.HasSuffix(info.Path, "/") && !strings.HasSuffix(below, "/") {
		below += "/"
	}
	query["path"] = []string{below}
	return query
}

// mayCreate returns an error if the user may not create the subresource. For a POST, authorization has already
// checked this. For a GET, which begins a WebSocket, it has checked only the verb get: see NeedsCreate.
func (cn connector) mayCreate(ctx context.Context, info *request.Info) error {
	user := request.UserFrom(ctx)
	if info.Verb == "create" || cn.authorizer == nil {
		return nil
	}
	if user == nil {
		return kerrors.NewInternalError(errors.New("the request has no user"))
	}
	create := *info
	create.Verb = "create"
	decision, reason, err := authz.Further(ctx, cn.authorizer, authz.Attributes{User: user, Info: &create})
	switch {
	case err != nil:
		return err
	case decision != authz.Allow:
		gr := schema.GroupResource{Group: info.Group, Resource: info.Resource}
		return kerrors.NewForbidden(gr, info.Name, errors.New(reason))
	}
	return nil
}

// connectError returns the error for the client. As in kube-apiserver, if another object is missing (the node of a
// pod), the error names it with the requested resource, and errors without a status are 500 without a reason.
func connectError(gr schema.GroupResource, err error) error {
	var status kerrors.APIStatus
	var location *proxy.LocationError
	switch {
	case kerrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil:
		return kerrors.NewNotFound(gr, status.Status().Details.Name)
	case errors.As(err, &status):
		return err
	case errors.As(err, &location):
		return kerrors.NewInternalError(location)
	// For example, a plain GET of pods/exec, which needs a WebSocket or SPDY.
	case errors.Is(err, proxy.ErrUpgradeRequired):
		return kerrors.NewBadRequest(err.Error())
	case errors.As(err, new(*proxy.UnreachableError)):
		return kerrors.NewServiceUnavailable(err.Error())
	}
	return apierr.New(http.StatusInternalServerError, "", err.Error())
}

// answerConnectError answers an error of a proxy.
func answerConnectError(w http.ResponseWriter, r *http.Request, err error) {
	apiresponse.Error(w, r, connectError(schema.GroupResource{}, err))
}

// forward forwards a request to a node, a pod or a service, with its path and query.
func (cn connector) forward(w http.ResponseWriter, r *http.Request, d *registry.Destination) {
	d.URL.RawQuery = r.URL.RawQuery
	if d.URL.Path == "" && !proxy.IsUpgrade(r) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		// Relative links in the page would be wrong without the slash.
		location := r.URL.Path + "/"
		if r.URL.RawQuery != "" {
			location += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	rewriter := proxy.NewRewriter(r.URL.Path, d.URL.Path)
	if d.URL.Path == "" {
		d.URL.Path = "/"
	}
	(&proxy.Handler{
		Target: d.Target, Rewrite: rewriter, BytesPerSecond: cn.bytesPerSecond, Error: answerConnectError,
	}).ServeHTTP(w, r)
}

// stream forwards a connection to a kubelet. WebSockets are translated unless the kubelet takes them as they are.
// By default, kubectl sends WebSockets since 1.30 (exec, attach) and 1.31 (port-forward), see KEP-4006. Kubelets
// may only speak SPDY.
func (cn connector) stream(w http.ResponseWriter, r *http.Request, info *request.Info, d *registry.Destination) {
	forwarder := &proxy.Handler{
		Target: d.Target, UpgradeOnly: true, BytesPerSecond: cn.bytesPerSecond, Error: answerConnectError,
	}
	cn.observer.webSocket(info.Subresource, d.Streams != nil || d.Tunnel)
	switch {
	case d.Streams != nil && websocket.Translates(r):
		(&websocket.Translator{
			Options: websocket.Options{Proxy: forwarder, Observe: byCode(cn.observer.translated)},
			Stdin:   d.Streams.Stdin, Stdout: d.Streams.Stdout, Stderr: d.Streams.Stderr, TTY: d.Streams.TTY,
		}).ServeHTTP(w, r)
	case d.Tunnel && websocket.Tunnels(r):
		(&websocket.Tunnel{
			Options: websocket.Options{Proxy: forwarder, Observe: byCode(cn.observer.tunneled)},
		}).ServeHTTP(w, r)
	default:
		forwarder.ServeHTTP(w, r)
	}
}

// maxErrorText limits the bytes that are read of an error of a kubelet. kube-apiserver has the same limit. The
// rest of a longer text is dropped.
const maxErrorText = 50000

// readFrom sends a GET to the destination and responds with the body of its answer.
func (cn connector) readFrom(w http.ResponseWriter, r *http.Request, info *request.Info, d *registry.Destination) error {
	// The transport carries the credentials of this server. A kubelet must not be able to send them to another
	// host by a redirect.
	client := http.Client{Transport: d.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("redirects forbidden")
	}}
	out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, d.URL.String(), nil)
	if err != nil {
		return err
	}
	cn.observer.log(d.Unverified)
	response, err := client.Do(out)
	if err != nil {
		cn.observer.logFailed(err)
		return apierr.New(http.StatusInternalServerError, "", err.Error())
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent {
		return readError(response, info)
	}
	if websocket.IsRequest(r) {
		websocket.Send(w, r, response.Body)
		return nil
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	to := io.Writer(w)
	controller := http.NewResponseController(w)
	// The head is sent now: a client that follows a log sees that the connection works before the first line.
	if err := controller.Flush(); err == nil && d.Flush {
		to = flushingWriter{w, controller}
	}
	if _, err := io.Copy(to, response.Body); err != nil && r.Context().Err() == nil {
		panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
	}
	return nil
}

// readError returns the error that a kubelet has sent instead of a log. As in kube-apiserver, 400 and 500 always
// pass on the text of the kubelet. Other codes get a general message, in most cases (404, for example) without the
// text.
func readError(response *http.Response, info *request.Info) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxErrorText))
	if err != nil {
		return kerrors.NewInternalError(err)
	}
	switch response.StatusCode {
	case http.StatusInternalServerError:
		return kerrors.NewInternalError(errors.New(string(text)))
	case http.StatusBadRequest:
		return kerrors.NewBadRequest(string(text))
	}
	gr := schema.GroupResource{Group: info.Group, Resource: path.Join(info.Resource, info.Subresource)}
	return kerrors.NewGenericServerResponse(response.StatusCode, "", gr, info.Name, string(text), 0, false)
}

// flushingWriter flushes the response after each write.
type flushingWriter struct {
	io.Writer
	controller *http.ResponseController
}

// Write implements io.Writer.
func (f flushingWriter) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil {
		err = f.controller.Flush()
	}
	return n, err
}
