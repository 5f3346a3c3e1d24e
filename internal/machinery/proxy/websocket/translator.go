package websocket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
)

const (
	// idleTime limits the time without data on a WebSocket, as in kube-apiserver.
	idleTime = 4 * time.Hour
	// refusalTime limits the time for reading the error of a kubelet.
	refusalTime = 10 * time.Second
	// statusTime limits the time for writing the final status.
	statusTime = 10 * time.Second
	// pingPeriod is the time between two pings of an idle SPDY connection.
	pingPeriod = 5 * time.Second
	// maxStatus is the largest status that a kubelet may send at the end, in bytes.
	maxStatus = 1 << 20
)

// A Translator serves the streams of a command (exec, attach) to a client that speaks WebSocket, where the kubelet
// speaks SPDY. Both have one channel for each stream:
//
//	WebSocket channel  0 stdin  1 stdout  2 stderr  3 status  4 resize
//	SPDY stream type   stdin    stdout    stderr    error     resize
//
// The WebSocket is opened first; errors after that are sent on its status channel.
type Translator struct {
	Options
	// The streams of the command.
	Stdin, Stdout, Stderr, TTY bool
}

// ServeHTTP implements http.Handler.
func (t *Translator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, err := t.openClient(w, r)
	if err != nil {
		t.Observe.done(http.StatusBadRequest) // the library has answered
		return
	}
	defer client.conn.Close()
	result := t.run(r, client)
	var status *kerrors.StatusError
	switch {
	case result == nil:
		status = &kerrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusSuccess}}
	case errors.As(result, &status):
	default:
		status = kerrors.NewInternalError(result)
	}
	code := int(status.ErrStatus.Code)
	if code == 0 { // success, or the exit code of the command
		code = http.StatusOK
	}
	t.Observe.done(code)
	client.writeStatus(status)
}

// client is a WebSocket with one channel for each stream.
type client struct {
	conn     *wsstream.Conn
	channels []io.ReadWriteCloser
	// gone is closed when the WebSocket has ended.
	gone <-chan struct{}
}

// openClient answers the client and opens the WebSocket.
func (t *Translator) openClient(w http.ResponseWriter, r *http.Request) (*client, error) {
	channels := make([]wsstream.ChannelType, remotecommand.StreamResize+1)
	for i, use := range map[int]struct {
		used bool
		kind wsstream.ChannelType
	}{
		remotecommand.StreamStdIn:  {t.Stdin, wsstream.ReadChannel},
		remotecommand.StreamStdOut: {t.Stdout, wsstream.WriteChannel},
		remotecommand.StreamStdErr: {t.Stderr, wsstream.WriteChannel},
		remotecommand.StreamErr:    {true, wsstream.WriteChannel},
		remotecommand.StreamResize: {true, wsstream.ReadChannel},
	} {
		channels[i] = wsstream.IgnoreChannel
		if use.used {
			channels[i] = use.kind
		}
	}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		remotecommand.StreamProtocolV5Name: {Binary: true, Channels: channels},
	})
	conn.SetIdleTimeout(idleTime)
	notifier := &hijackNotifier{ResponseWriter: w, closed: make(chan struct{})}
	_, streams, err := conn.Open(notifier, r)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, channels: streams, gone: notifier.closed}
	// The client knows by an empty message that the connection is open.
	first := remotecommand.StreamErr
	switch {
	case t.Stdout:
		first = remotecommand.StreamStdOut
	case t.Stderr:
		first = remotecommand.StreamStdErr
	}
	if _, err := streams[first].Write(nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// hijackNotifier is a ResponseWriter that notifies when its hijacked connection was closed.
type hijackNotifier struct {
	http.ResponseWriter
	closed chan struct{}
}

// Hijack implements http.Hijacker.
func (h *hijackNotifier) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &notifyingConn{Conn: conn, closed: h.closed}, rw, nil
}

type notifyingConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close implements net.Conn.
func (c *notifyingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// writeStatus sends the final status.
func (c *client) writeStatus(status *kerrors.StatusError) {
	b, err := json.Marshal(status.ErrStatus)
	if err != nil {
		return // a Status can always be encoded
	}
	c.conn.SetWriteDeadline(statusTime)
	_, _ = c.channels[remotecommand.StreamErr].Write(b) // an error means that the client is gone
}

// run carries the streams to the kubelet until the command ends, and returns how it has ended.
func (t *Translator) run(r *http.Request, c *client) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-c.gone:
			cancel() // the output of the command is no longer read
		case <-ctx.Done():
		}
	}()
	server, conn, err := t.openServer(ctx, r)
	if err != nil {
		return err
	}
	// server.Close leaves conn open until the kubelet has closed all streams.
	defer conn.Close()
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	s, err := t.createStreams(ctx, server)
	if err != nil {
		return err
	}
	s.copyAll(ctx, c, t.Proxy.BytesPerSecond)
	err = s.result()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// openServer opens a connection to the kubelet, and SPDY on it. The headers of the client are not forwarded.
func (t *Translator) openServer(ctx context.Context, r *http.Request) (httpstream.Connection, net.Conn, error) {
	out := spdyRequest(r.WithContext(ctx), http.Header{}, remotecommand.StreamProtocolV5Name,
		remotecommand.StreamProtocolV4Name)
	out.RemoteAddr = ""
	conn, err := t.Proxy.Open(out)
	if err != nil {
		return nil, nil, err
	}
	if !hasSwitched(conn.Response) {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		_ = conn.SetDeadline(time.Now().Add(refusalTime)) // a TCP connection has deadlines
		return nil, nil, refusal(conn.Response)
	}
	switch protocol := conn.Response.Header.Get(httpstream.HeaderProtocolVersion); protocol {
	case remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name:
	default:
		_ = conn.Close()
		return nil, nil, fmt.Errorf("the kubelet speaks the protocol %q, not %s", protocol, remotecommand.StreamProtocolV4Name)
	}
	server, err := streamspdy.NewClientConnectionWithPings(&frames{Conn: conn}, pingPeriod)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return server, conn, nil
}

// refusal returns the error that a kubelet has sent instead of 101: a Status or a text.
func refusal(r *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxStatus))
	if err != nil {
		return fmt.Errorf("unable to upgrade connection: unable to read error from server response: %w", err)
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" && status.APIVersion == "v1" {
		return &kerrors.StatusError{ErrStatus: status}
	}
	return fmt.Errorf("unable to upgrade connection: %s", body)
}

// streams are the SPDY streams of a command; unused ones are nil.
type streams struct{ status, stdin, stdout, stderr, resize httpstream.Stream }

// createStreams creates the streams of the command. It returns when ctx is done: the library waits for the kubelet's
// answer to each stream for 30 s, even if the connection has been closed.
func (t *Translator) createStreams(ctx context.Context, server httpstream.Connection) (*streams, error) {
	s := &streams{}
	created := make(chan error, 1)
	go func() {
		for _, create := range []struct {
			stream *httpstream.Stream
			kind   string
			used   bool
		}{
			{&s.status, corev1.StreamTypeError, true},
			{&s.stdin, corev1.StreamTypeStdin, t.Stdin},
			{&s.stdout, corev1.StreamTypeStdout, t.Stdout},
			{&s.stderr, corev1.StreamTypeStderr, t.Stderr && !t.TTY}, // a terminal has one output
			{&s.resize, corev1.StreamTypeResize, t.TTY},
		} {
			if !create.used {
				continue
			}
			stream, err := server.CreateStream(http.Header{corev1.StreamType: {create.kind}})
			if err != nil {
				created <- err
				return
			}
			*create.stream = stream
		}
		created <- nil
	}()
	select {
	case err := <-created:
		return s, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// copyAll copies the streams until the command has closed its outputs.
func (s *streams) copyAll(ctx context.Context, c *client, perSecond int64) {
	// Nothing is written to the status stream, and nothing is read from the input streams. Closing these directions
	// ends them for the kubelet.
	_ = s.status.Close()
	input := func(to httpstream.Stream, channel int) {
		if to == nil {
			return
		}
		go func() {
			_, _ = io.Copy(to, proxy.Paced(ctx, c.channels[channel], perSecond)) // an error means that one side has closed
			_ = to.Close()
		}()
	}
	input(s.stdin, remotecommand.StreamStdIn)
	if s.stdin != nil {
		// Data that is not read uses up the flow control window of the whole SPDY connection.
		go func() { _, _ = io.Copy(io.Discard, s.stdin) }()
	}
	input(s.resize, remotecommand.StreamResize)
	if s.resize == nil {
		// A channel that is not read would block the others.
		go func() { _, _ = io.Copy(io.Discard, c.channels[remotecommand.StreamResize]) }()
	}
	ended := make(chan struct{}, 2)
	outputs := 0
	output := func(from httpstream.Stream, channel int) {
		if from == nil {
			return
		}
		outputs++
		go func() {
			_, _ = io.Copy(onlyWriter{c.channels[channel]}, proxy.Paced(ctx, from, perSecond))
			// The kubelet sends the status after all output, so output that the client does not take is discarded.
			_, _ = io.Copy(io.Discard, from)
			ended <- struct{}{}
		}()
	}
	output(s.stdout, remotecommand.StreamStdOut)
	output(s.stderr, remotecommand.StreamStdErr)
	for range outputs {
		<-ended
	}
}

type onlyWriter struct{ io.Writer }

// result returns what the kubelet has sent on the status stream: nil if the command has ended well.
func (s *streams) result() error {
	message, err := io.ReadAll(io.LimitReader(s.status, maxStatus))
	switch {
	case err != nil:
		return fmt.Errorf("error reading from error stream: %w", err)
	case len(message) == 0:
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(message, &status); err != nil {
		return fmt.Errorf("error stream protocol error: %w in %q", err, message)
	}
	switch {
	case status.Status == metav1.StatusSuccess:
		return nil
	case status.Status != metav1.StatusFailure:
		return errors.New("error stream protocol error: unknown error")
	case status.Reason != remotecommand.NonZeroExitCodeReason:
		return errors.New(status.Message)
	}
	return exitCode(&status)
}

// exitCode returns the exit code of a command as the error that clients get.
func exitCode(status *metav1.Status) error {
	if status.Details == nil {
		return errors.New("error stream protocol error: details must be set")
	}
	for i := range status.Details.Causes {
		cause := &status.Details.Causes[i]
		if cause.Type != remotecommand.ExitCodeCauseType {
			continue
		}
		code, err := strconv.ParseUint(cause.Message, 10, 8)
		if err != nil {
			return fmt.Errorf("error stream protocol error: invalid exit code value %q", cause.Message)
		}
		return &kerrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: remotecommand.ExitCodeCauseType, Message: strconv.FormatUint(code, 10)},
			}},
			Message: fmt.Sprintf(
				"command terminated with non-zero exit code: command terminated with exit code %d", code),
		}}
	}
	return fmt.Errorf("error stream protocol error: no %s cause given", remotecommand.ExitCodeCauseType)
}
