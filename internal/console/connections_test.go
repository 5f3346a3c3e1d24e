package console

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestHalfRequestsKeepNobodyOut opens more connections than the limit and sends half of a request on each. A
// complete request must be served at once. The newest of the other connections are still open then.
func TestHalfRequestsKeepNobodyOut(t *testing.T) {
	t.Run("headers", func(t *testing.T) { halfRequests(t, "GET / HTTP/1.1\r\nHost: x\r\n", "\r\n") })
	t.Run("body", func(t *testing.T) {
		halfRequests(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234", "56789")
	})
}

func halfRequests(t *testing.T, first, rest string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := &connections{Listener: l, most: 20}
	s := &http.Server{
		Handler: all.serve(http.NotFoundHandler()), ReadHeaderTimeout: time.Minute, ConnState: all.note, ConnContext: all.connContext,
	}
	ended := make(chan error)
	go func() { ended <- s.Serve(all) }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var half []net.Conn
	for range 50 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, first) // the server may have closed it
		half = append(half, conn)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("waited up to 30 s for the answer to a complete request: %v", err)
	}
	answer.Body.Close()
	last := half[len(half)-1]
	if deadline, ok := ctx.Deadline(); ok {
		_ = last.SetDeadline(deadline)
	}
	if _, err := io.WriteString(last, rest); err != nil {
		t.Fatal(err)
	}
	if answer, err := http.ReadResponse(bufio.NewReader(last), nil); err != nil || answer.StatusCode != http.StatusNotFound {
		t.Errorf("the last half request, completed: %v", err)
	}
	all.mu.Lock()
	if all.open > all.most {
		t.Errorf("%d connections are open", all.open)
	}
	all.mu.Unlock()
	http.DefaultClient.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}
