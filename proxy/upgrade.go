package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

const (
	// refusalTime is how long the relaying of a refused upgrade may take.
	refusalTime = 10 * time.Second
	// headerTime is how long a server may take to answer an upgrade, once it is connected.
	headerTime = time.Minute
	// maxHeader is the largest header of a response to an upgrade, in bytes.
	maxHeader = 1 << 20
)

// upgrade forwards a request for another protocol. If the server agrees, both connections are joined until one of
// them ends. If it answers with an error, the error is relayed and the client's connection is closed: on a
// connection that were kept, a client could send further requests past authorization (CVE-2018-1002105). Other answers,
// such as redirects, are not relayed (CVE-2020-8559).
func (h *Handler) upgrade(w http.ResponseWriter, r *http.Request) {
	u, err := h.dialUpgrade(r)
	if err != nil {
		h.Error(w, r, err)
		return
	}
	defer u.conn.Close()
	switch code := u.response.StatusCode; {
	case code == http.StatusSwitchingProtocols:
		h.join(w, r, u)
	case code >= http.StatusBadRequest:
		u.relayRefusal(w)
	default:
		h.Error(w, r, fmt.Errorf("invalid upgrade response: status code %d", code))
	}
}

// upgraded is a connection to a server that has answered a request for another protocol.
type upgraded struct {
	conn     net.Conn
	reader   *bufio.Reader // what follows the header of the response
	limit    *io.LimitedReader
	response *http.Response
}

// dialUpgrade connects to the server, sends the request and reads the header of the response.
func (h *Handler) dialUpgrade(r *http.Request) (*upgraded, error) {
	ctx := r.Context()
	conn, err := h.Target.Transport.Connect(ctx, h.Target.URL, h.Target.Address)
	if err != nil {
		return nil, fmt.Errorf("error dialing backend: %w", err)
	}
	u, err := h.sendUpgrade(ctx, conn, h.upgradeRequest(r))
	if err != nil {
		_ = conn.Close() // the error before says more
		return nil, err
	}
	return u, nil
}

func (h *Handler) sendUpgrade(ctx context.Context, conn net.Conn, r *http.Request) (*upgraded, error) {
	// The deadline ends reads and writes when the request ends.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(headerTime)); err != nil {
		return nil, err
	}
	if err := r.Write(conn); err != nil {
		return nil, fmt.Errorf("error sending request: %w", err)
	}
	u := &upgraded{conn: conn, limit: &io.LimitedReader{R: conn, N: maxHeader}}
	u.reader = bufio.NewReader(u.limit)
	var err error
	if u.response, err = http.ReadResponse(u.reader, nil); err != nil {
		return nil, err
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	u.limit.N = 1<<63 - 1
	return u, conn.SetDeadline(time.Time{})
}

// upgradeRequest returns the request that the server gets.
func (h *Handler) upgradeRequest(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	out.URL, out.RequestURI = h.Target.URL, ""
	if out.Host = h.Target.Host; out.Host == "" {
		out.Host = r.Host
	}
	removeHopByHop(out.Header)
	out.Header.Set("Connection", "Upgrade")
	if protocol, ok := r.Header["Upgrade"]; ok {
		out.Header["Upgrade"] = protocol
	}
	h.setHeaders(out.Header, r)
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = []string{""} // or else net/http sends its own
	}
	return out
}

// removeHopByHop removes the headers that are for one connection only.
func removeHopByHop(h http.Header) {
	for _, value := range h["Connection"] {
		for _, name := range strings.Split(value, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate",
		"Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		h.Del(name)
	}
}

// relayRefusal sends the client the server's answer, and closes the client's connection.
func (u *upgraded) relayRefusal(w http.ResponseWriter) {
	deadline := time.Now().Add(refusalTime)
	_ = u.conn.SetDeadline(deadline)                             // a TCP connection has deadlines
	_ = http.NewResponseController(w).SetWriteDeadline(deadline) // of HTTP/1.1 too
	removeHopByHop(u.response.Header)
	for name, values := range u.response.Header {
		w.Header()[name] = append(w.Header()[name], values...)
	}
	w.Header().Set("Connection", "close")
	w.WriteHeader(u.response.StatusCode)
	_, _ = io.Copy(w, u.response.Body) // an error means that one of the two is gone
}

// join answers 101 and copies in both directions until one of the connections ends.
func (h *Handler) join(w http.ResponseWriter, r *http.Request, u *upgraded) {
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.Error(w, r, fmt.Errorf("error hijacking connection: %w", err))
		return
	}
	defer client.Close()
	// A hijacked connection keeps the deadlines that net/http has set.
	_ = client.SetDeadline(time.Time{})
	if err := writeSwitch(client, u.response); err != nil {
		return // the client is gone
	}
	stop := context.AfterFunc(r.Context(), func() {
		_ = u.conn.Close()
		_ = client.Close()
	})
	defer stop()
	ended := make(chan struct{}, 2)
	copyTo := func(to io.Writer, from io.Reader) {
		b := h.Target.Transport.buffers.Get()
		defer h.Target.Transport.buffers.Put(b)
		// The end of a connection is no error of the proxy, so there is nothing to report.
		_, _ = io.CopyBuffer(onlyWriter{to}, onlyReader{Paced(r.Context(), from, h.BytesPerSecond)}, b)
		ended <- struct{}{}
	}
	var fromClient io.Reader = client
	if buffered != nil { // a wrapper of the connection may have no buffer
		fromClient = buffered.Reader
	}
	go copyTo(u.conn, fromClient)
	go copyTo(client, u.reader)
	<-ended
	// The other goroutine ends when its connection is closed.
	_ = u.conn.Close()
	_ = client.Close()
	<-ended
}

// writeSwitch writes the header of a response 101.
func writeSwitch(w io.Writer, response *http.Response) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "HTTP/1.1 %s\r\n", response.Status)
	if err := response.Header.Write(b); err != nil {
		return err
	}
	if _, err := b.WriteString("\r\n"); err != nil {
		return err
	}
	return b.Flush()
}

// onlyWriter and onlyReader hide the other methods, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

type onlyReader struct{ io.Reader }

// Paced returns a reader that reads at most perSecond bytes in a second, on average; 0 is no limit. Reading fails when
// ctx ends.
func Paced(ctx context.Context, r io.Reader, perSecond int64) io.Reader {
	if perSecond <= 0 {
		return r
	}
	burst := int(min(perSecond, bufferSize))
	return &pacedReader{ctx: ctx, r: r, limiter: rate.NewLimiter(rate.Limit(perSecond), burst), most: burst}
}

type pacedReader struct {
	ctx     context.Context
	r       io.Reader
	limiter *rate.Limiter
	most    int
}

// Read implements io.Reader.
func (p *pacedReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b[:min(len(b), p.most)])
	if n > 0 {
		if waited := p.limiter.WaitN(p.ctx, n); waited != nil && err == nil {
			err = waited
		}
	}
	return n, err
}
