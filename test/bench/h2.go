package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// These are the settings that Go's own HTTP/2 transport announces, and so client-go.
const (
	streamWindow = 4 << 20
	connWindow   = 1 << 30
	largestFrame = 1 << 20
)

const (
	firstWindow    = 65535 // of both sides until they are changed (RFC 9113, 6.9.2)
	windowRefresh  = 1 << 20
	frameHeaderLen = 9
	readBuffer     = 64 << 10
	headerTable    = 4096
	dialTimeout    = 10 * time.Second
)

// connection is one HTTP/2 client connection. One goroutine drives it: it reads, calls the functions of the streams,
// and writes their requests when there is nothing more to read. Client and server share the processors, so the client
// avoids all work that the measurement does not need: it starts no goroutine or timer and allocates nothing for a
// request, does not copy bodies, and decodes only the status of a response's headers.
type connection struct {
	target     *target
	nc         net.Conn
	buf        []byte
	start, end int // the range of buf that was read and not yet parsed
	out        []byte

	henc *hpack.Encoder
	hbuf bytes.Buffer
	hdec *hpack.Decoder
	// The state of hdec.
	decoding *stream

	// The DATA frame that is being read.
	dataOf     *stream // nil if the stream has ended
	dataLeft   int
	paddedLeft int
	dataEnds   bool

	streams    map[uint32]*stream
	nextID     uint32
	unreturned int // bytes that were read and not yet added to the server's send window
	settled    bool
	maxStreams int // the server's limit

	sendWindow, streamSend, peerFrame int
	blocked                           []*stream // streams whose bodies wait for a window
	goneAway                          bool
}

// stream is one request and its response. It may be used again when it has ended.
type stream struct {
	number int // the caller's number of the request
	sent   time.Time
	status int
	size   int // bytes of the body so far, as transferred

	onHeader func(name, value string)  // if nil, only the status is decoded
	onStatus func(s *stream)           // called when the headers are there
	onData   func(s *stream, p []byte) // if nil, the body is counted and dropped
	onEnd    func(s *stream)           // called after the last byte

	id         uint32
	sendWindow int
	unsent     []byte
	unreturned int
}

// request is a request to send. The body must not change until the stream has ended.
type request struct {
	method, path, accept, contentType, acceptEncoding string

	body []byte
}

// dial opens a connection and waits for the server's settings.
func dial(t *target) (*connection, error) {
	d := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: dialTimeout},
		//nolint:gosec // a server on this machine with a self-signed certificate
		Config: &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{http2.NextProtoTLS}, MinVersion: tls.VersionTLS12,
		},
	}
	nc, err := d.Dial("tcp", t.address)
	if err != nil {
		return nil, err
	}
	if p := nc.(*tls.Conn).ConnectionState().NegotiatedProtocol; p != http2.NextProtoTLS {
		return nil, errors.Join(fmt.Errorf("%s speaks %q, not HTTP/2", t.address, p), nc.Close())
	}
	c := &connection{
		target: t, nc: nc, buf: make([]byte, readBuffer), streams: map[uint32]*stream{}, nextID: 1,
		maxStreams: 100, sendWindow: firstWindow, streamSend: firstWindow, peerFrame: 16 << 10,
	}
	c.henc = hpack.NewEncoder(&c.hbuf)
	c.hdec = hpack.NewDecoder(headerTable, c.header)
	c.out = append(c.out, http2.ClientPreface...)
	settings := []http2.Setting{
		{ID: http2.SettingEnablePush, Val: 0}, {ID: http2.SettingInitialWindowSize, Val: streamWindow},
		{ID: http2.SettingMaxFrameSize, Val: largestFrame},
	}
	c.frame(6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		c.out = binary.BigEndian.AppendUint16(c.out, uint16(s.ID))
		c.out = binary.BigEndian.AppendUint32(c.out, s.Val)
	}
	c.windowUpdate(0, connWindow)
	if err := c.run(time.Now().Add(dialTimeout), func() bool { return c.settled }); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return c, nil
}

func (c *connection) close() { _ = c.nc.Close() } // no data can be lost

// frame appends the header of a frame.
func (c *connection) frame(length int, kind http2.FrameType, flags http2.Flags, id uint32) {
	c.out = append(c.out, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	c.out = binary.BigEndian.AppendUint32(c.out, id)
}

func (c *connection) windowUpdate(id uint32, n int) {
	c.frame(4, http2.FrameWindowUpdate, 0, id)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(n))
}

// send starts a request. run writes it.
func (c *connection) send(s *stream, r *request) {
	s.id, s.status, s.size, s.unreturned, s.sendWindow = c.nextID, 0, 0, 0, c.streamSend
	c.nextID += 2
	c.streams[s.id] = s

	c.hbuf.Reset()
	field := func(name, value string, sensitive bool) {
		_ = c.henc.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: sensitive}) // writes to memory
	}
	field(":authority", c.target.address, false)
	field(":method", r.method, false)
	// Paths are all different: in the table they would only replace other entries.
	field(":path", r.path, true)
	field(":scheme", "https", false)
	if c.target.bearer != "" {
		field("authorization", c.target.bearer, false)
	}
	field("accept", r.accept, false)
	if r.acceptEncoding != "" {
		field("accept-encoding", r.acceptEncoding, false)
	}
	field("user-agent", userAgent, false)
	flags := http2.FlagHeadersEndHeaders
	if len(r.body) == 0 {
		flags |= http2.FlagHeadersEndStream
	} else {
		field("content-type", r.contentType, false)
		field("content-length", strconv.Itoa(len(r.body)), false)
	}
	c.frame(c.hbuf.Len(), http2.FrameHeaders, flags, s.id)
	c.out = append(c.out, c.hbuf.Bytes()...)
	if len(r.body) > 0 {
		s.unsent = r.body
		c.sendBody(s)
	}
	s.sent = time.Now()
}

// sendBody writes as much as the windows allow. It reports whether that was everything.
func (c *connection) sendBody(s *stream) bool {
	for len(s.unsent) > 0 {
		n := min(len(s.unsent), c.peerFrame, c.sendWindow, s.sendWindow)
		if n <= 0 {
			c.blocked = append(c.blocked, s)
			return false
		}
		var flags http2.Flags
		if n == len(s.unsent) {
			flags = http2.FlagDataEndStream
		}
		c.frame(n, http2.FrameData, flags, s.id)
		c.out = append(c.out, s.unsent[:n]...)
		s.unsent = s.unsent[n:]
		c.sendWindow -= n
		s.sendWindow -= n
	}
	return true
}

func (c *connection) unblock() {
	waiting := c.blocked
	c.blocked = nil
	for _, s := range waiting {
		if c.streams[s.id] == s {
			c.sendBody(s)
		}
	}
}

// run drives the connection until done returns true. It returns an error if the deadline passes before. done is called
// whenever all received data was parsed.
func (c *connection) run(deadline time.Time, done func() bool) error {
	if err := c.nc.SetDeadline(deadline); err != nil {
		return err
	}
	for {
		if err := c.parse(); err != nil {
			return err
		}
		finished := done()
		if len(c.out) > 0 {
			if _, err := c.nc.Write(c.out); err != nil {
				return err
			}
			c.out = c.out[:0]
		}
		if finished {
			return nil
		}
		if c.start > 0 {
			c.end = copy(c.buf, c.buf[c.start:c.end])
			c.start = 0
		}
		n, err := c.nc.Read(c.buf[c.end:])
		if err != nil {
			return err
		}
		c.end += n
	}
}

// parse parses the received data. Parts of DATA frames are passed on at once; other frames are parsed when they are
// complete.
func (c *connection) parse() error {
	for {
		in := c.buf[c.start:c.end]
		if c.dataLeft+c.paddedLeft > 0 || c.dataEnds {
			if len(in) == 0 && c.dataLeft+c.paddedLeft > 0 {
				return nil
			}
			c.takeData(in)
			continue
		}
		if len(in) < frameHeaderLen {
			return nil
		}
		length := int(in[0])<<16 | int(in[1])<<8 | int(in[2])
		kind, flags := http2.FrameType(in[3]), http2.Flags(in[4])
		id := binary.BigEndian.Uint32(in[5:]) & (1<<31 - 1)
		if kind == http2.FrameData {
			head := frameHeaderLen
			c.dataOf, c.dataLeft, c.paddedLeft = c.streams[id], length, 0
			if flags.Has(http2.FlagDataPadded) {
				if len(in) == frameHeaderLen {
					return nil
				}
				head++
				c.paddedLeft = int(in[frameHeaderLen])
				c.dataLeft -= 1 + c.paddedLeft
			}
			c.dataEnds = flags.Has(http2.FlagDataEndStream)
			c.start += head
			c.refund(length)
			continue
		}
		if frameHeaderLen+length > len(c.buf) {
			return fmt.Errorf("a %v frame of %d bytes", kind, length)
		}
		if len(in) < frameHeaderLen+length {
			return nil
		}
		c.start += frameHeaderLen + length
		if err := c.control(kind, flags, id, in[frameHeaderLen:frameHeaderLen+length]); err != nil {
			return err
		}
	}
}

// takeData consumes the received part of a DATA frame.
func (c *connection) takeData(in []byte) {
	n := min(len(in), c.dataLeft)
	if s := c.dataOf; s != nil && n > 0 {
		s.size += n
		if s.onData != nil {
			s.onData(s, in[:n])
		}
	}
	padding := min(len(in)-n, c.paddedLeft)
	c.dataLeft -= n
	c.paddedLeft -= padding
	c.start += n + padding
	if c.dataLeft+c.paddedLeft == 0 && c.dataEnds {
		c.dataEnds = false
		c.finish(c.dataOf)
	}
}

// refund enlarges the receive windows, in large steps.
func (c *connection) refund(n int) {
	if c.unreturned += n; c.unreturned >= windowRefresh {
		c.windowUpdate(0, c.unreturned)
		c.unreturned = 0
	}
	if s := c.dataOf; s != nil && !c.dataEnds {
		if s.unreturned += n; s.unreturned >= windowRefresh {
			c.windowUpdate(s.id, s.unreturned)
			s.unreturned = 0
		}
	}
}

func (c *connection) finish(s *stream) {
	if s == nil {
		return
	}
	delete(c.streams, s.id)
	if s.onEnd != nil {
		s.onEnd(s)
	}
}

// control handles all frames except DATA.
func (c *connection) control(kind http2.FrameType, flags http2.Flags, id uint32, p []byte) error {
	switch kind {
	case http2.FrameHeaders:
		return c.headers(flags, id, p)
	case http2.FrameContinuation:
		return errors.New("a CONTINUATION frame, which no API server needs")
	case http2.FrameSettings:
		if !flags.Has(http2.FlagSettingsAck) {
			c.settings(p)
		}
	case http2.FramePing:
		if !flags.Has(http2.FlagPingAck) {
			c.frame(len(p), http2.FramePing, http2.FlagPingAck, 0)
			c.out = append(c.out, p...)
		}
	case http2.FrameWindowUpdate:
		n := int(binary.BigEndian.Uint32(p))
		if id == 0 {
			c.sendWindow += n
		} else if s := c.streams[id]; s != nil {
			s.sendWindow += n
		}
		c.unblock()
	case http2.FrameRSTStream:
		if s := c.streams[id]; s != nil {
			s.status = -int(binary.BigEndian.Uint32(p)) - 1
			c.finish(s)
		}
	case http2.FrameGoAway:
		c.goneAway = true
		if code := http2.ErrCode(binary.BigEndian.Uint32(p[4:])); code != http2.ErrCodeNo {
			return fmt.Errorf("the server sent GOAWAY: %v %s", code, p[8:])
		}
	}
	return nil
}

func (c *connection) headers(flags http2.Flags, id uint32, p []byte) error {
	if flags.Has(http2.FlagHeadersPadded) || !flags.Has(http2.FlagHeadersEndHeaders) {
		return errors.New("a HEADERS frame with padding or a continuation, which no API server needs")
	}
	if flags.Has(http2.FlagHeadersPriority) {
		p = p[5:]
	}
	s := c.streams[id]
	c.decoding = s
	c.hdec.SetEmitEnabled(s != nil && (s.status == 0 || s.onHeader != nil))
	if _, err := c.hdec.Write(p); err != nil {
		return err
	}
	if err := c.hdec.Close(); err != nil {
		return err
	}
	if s == nil {
		return nil
	}
	ends := flags.Has(http2.FlagHeadersEndStream)
	if s.onStatus != nil && !ends {
		s.onStatus(s)
	}
	if ends {
		c.finish(s)
	}
	return nil
}

// header handles one decoded header. The status is always the first.
func (c *connection) header(f hpack.HeaderField) {
	if f.Name == ":status" {
		c.decoding.status, _ = strconv.Atoi(f.Value) // 0, which is no success, if it is not a number
	}
	if c.decoding.onHeader == nil {
		c.hdec.SetEmitEnabled(false)
		return
	}
	c.decoding.onHeader(f.Name, f.Value)
}

func (c *connection) settings(p []byte) {
	for ; len(p) >= 6; p = p[6:] {
		v := int(binary.BigEndian.Uint32(p[2:]))
		switch http2.SettingID(binary.BigEndian.Uint16(p)) {
		case http2.SettingMaxConcurrentStreams:
			c.maxStreams = v
		case http2.SettingMaxFrameSize:
			c.peerFrame = v
		case http2.SettingInitialWindowSize:
			for _, s := range c.streams {
				s.sendWindow += v - c.streamSend
			}
			c.streamSend = v
		case http2.SettingHeaderTableSize:
			c.henc.SetMaxDynamicTableSizeLimit(uint32(v))
		}
	}
	c.frame(0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	c.settled = true
	c.unblock()
}

// answer is the result of do. The body is valid until the next call.
type answer struct {
	status int
	header map[string]string
	body   []byte
	wire   int // bytes of the body as transferred
}

// do sends one request and returns the whole response. It is used for requests that are not measured.
func (c *connection) do(r *request, limit time.Duration) (*answer, error) {
	a := &answer{header: map[string]string{}}
	done := false
	s := &stream{
		onHeader: func(name, value string) { a.header[name] = value },
		onData:   func(_ *stream, p []byte) { a.body = append(a.body, p...) },
		onEnd:    func(*stream) { done = true },
	}
	c.send(s, r)
	err := c.run(time.Now().Add(limit), func() bool { return done })
	a.status, a.wire = s.status, s.size
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	return a, nil
}
