package proxy

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// refusalTime limits the time in which a refused upgrade is relayed.
	refusalTime = 10 * time.Second
	// headerTime limits the time in which a connected server must respond to an upgrade.
	headerTime = time.Minute
	// maxHeader is the largest header of a response, in bytes.
	maxHeader = 1 << 20
)

// upgrade forwards a request for another protocol. If the server agrees, both connections are joined until one of
// them ends. If it answers with an error, the error is relayed and the client's connection is closed: if the
// connection stayed open, a client could send further requests past authorization (CVE-2018-1002105). Other answers,
// such as redirects, are not relayed (CVE-2020-8559).
func (h *Handler) upgrade(w http.ResponseWriter, r *http.Request) {
	// A client that does not send the body that it has announced must not hold the request for ever.
	controller := http.NewResponseController(w)
	_ = controller.SetReadDeadline(time.Now().Add(headerTime)) // connections of HTTP/1.1 have deadlines
	u, err := h.Open(r)
	_ = controller.SetReadDeadline(time.Time{})
	if err != nil {
		h.Error(w, r, err)
		return
	}
	defer u.Close()
	if u.Response.StatusCode != http.StatusSwitchingProtocols {
		h.Refuse(w, r, u)
		return
	}
	client, buffered, err := controller.Hijack()
	if err != nil {
		h.Error(w, r, fmt.Errorf("error hijacking connection: %w", err))
		return
	}
	defer client.Close()
	// A hijacked connection keeps the deadlines that net/http has set.
	_ = client.SetDeadline(time.Time{})
	if err := writeSwitch(client, u.Response); err != nil {
		return // the client is gone
	}
	var fromClient io.Reader = client
	if buffered != nil { // a wrapper of the connection may have no buffer
		fromClient = buffered.Reader
	}
	h.Join(r.Context(), struct {
		io.Reader
		io.WriteCloser
	}{fromClient, client}, u)
}

// Refuse responds to a client if the server has not agreed to the other protocol.
func (h *Handler) Refuse(w http.ResponseWriter, r *http.Request, u *Upgraded) {
	if u.Response.StatusCode < http.StatusBadRequest {
		h.Error(w, r, fmt.Errorf("invalid upgrade response: status code %d", u.Response.StatusCode))
		return
	}
	u.relayRefusal(w)
}

// Upgraded is a connection to a server that has answered a request for another protocol. Reading returns what follows
// the header of the response.
type Upgraded struct {
	net.Conn
	// Response is the answer. Its Body is only used if the server has refused.
	Response *http.Response

	reader *bufio.Reader
	limit  *io.LimitedReader
}

// Read implements io.Reader.
func (u *Upgraded) Read(b []byte) (int, error) { return u.reader.Read(b) }

// Open connects to the server, sends the request and reads the header of the response. The caller closes the connection.
func (h *Handler) Open(r *http.Request) (*Upgraded, error) {
	ctx := r.Context()
	conn, err := h.Target.Transport.Connect(ctx, h.Target.URL, h.Target.Addresses)
	if err != nil {
		return nil, fmt.Errorf("error dialing backend: %w", err)
	}
	u, err := h.sendUpgrade(ctx, conn, h.upgradeRequest(r))
	if err != nil {
		_ = conn.Close() // the earlier error is more useful
		return nil, err
	}
	return u, nil
}

func (h *Handler) sendUpgrade(ctx context.Context, conn net.Conn, r *http.Request) (*Upgraded, error) {
	// The deadline ends reads and writes when the request ends.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(headerTime)); err != nil {
		return nil, err
	}
	if err := r.Write(conn); err != nil {
		return nil, fmt.Errorf("error sending request: %w", err)
	}
	u := &Upgraded{Conn: conn, limit: &io.LimitedReader{R: conn, N: maxHeader}}
	u.reader = bufio.NewReader(u.limit)
	var err error
	if u.Response, err = http.ReadResponse(u.reader, r); err != nil {
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
	out.Host = cmp.Or(h.Target.Host, r.Host)
	removeHopByHop(out.Header)
	out.Header.Del("Http2-Settings") // for an upgrade to HTTP/2, over which the client could send more requests
	out.Header.Set("Connection", "Upgrade")
	if protocol, ok := r.Header["Upgrade"]; ok {
		out.Header["Upgrade"] = protocol
	}
	h.setHeaders(out.Header, r)
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
func (u *Upgraded) relayRefusal(w http.ResponseWriter) {
	deadline := time.Now().Add(refusalTime)
	_ = u.SetDeadline(deadline)                                  // a TCP connection has deadlines
	_ = http.NewResponseController(w).SetWriteDeadline(deadline) // so does a connection of HTTP/1.1
	removeHopByHop(u.Response.Header)
	for name, values := range u.Response.Header {
		w.Header()[name] = append(w.Header()[name], values...)
	}
	w.Header().Set("Connection", "close")
	w.WriteHeader(u.Response.StatusCode)
	_, _ = io.Copy(w, u.Response.Body) // an error means that one of the two is gone
}

// Join copies in both directions between a client and a server until one of them or ctx ends. It closes both.
func (h *Handler) Join(ctx context.Context, client, server io.ReadWriteCloser) {
	var once sync.Once
	closeBoth := func() {
		// The end of a connection is no error of the proxy, so there is nothing to report.
		once.Do(func() { _, _ = server.Close(), client.Close() })
	}
	defer context.AfterFunc(ctx, closeBoth)()
	ended := make(chan struct{}, 2)
	copyTo := func(to io.Writer, from io.Reader) {
		b := h.Target.Transport.buffers.Get()
		defer h.Target.Transport.buffers.Put(b)
		_, _ = io.CopyBuffer(onlyWriter{to}, onlyReader{Paced(ctx, from, h.BytesPerSecond)}, b)
		ended <- struct{}{}
	}
	go copyTo(server, client)
	go copyTo(client, server)
	<-ended
	closeBoth() // which ends the other goroutine
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

// Paced returns a reader that reads at most perSecond bytes in a second, on average; 0 means no limit. Reading fails when
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
