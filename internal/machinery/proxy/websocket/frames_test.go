package websocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// readConn is a connection that only reads.
type readConn struct {
	net.Conn
	io.Reader
}

func (c readConn) Read(b []byte) (int, error) { return c.Reader.Read(b) }

// frame returns a SPDY frame. first is the stream of a data frame, or the version and type of a control frame.
func frame(first uint32, flags byte, content []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, first)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content))) //nolint:gosec // it is small
	b[4] = flags
	return append(b, content...)
}

const control = 0x80030000

func TestDataFramesAreSplit(t *testing.T) {
	const fin = 1
	large := bytes.Repeat([]byte("0123456789"), 10_000)
	ping := frame(control|6, 0, []byte{0, 0, 0, 1})
	sent := bytes.Join([][]byte{
		frame(1, 0, []byte("a")), ping, frame(3, fin, large), frame(1, fin, nil), frame(control|4, 0, large[:maxControl]),
		frame(5, 0, large[:maxData]),
	}, nil)
	want := bytes.Join([][]byte{
		frame(1, 0, []byte("a")), ping,
		frame(3, 0, large[:maxData]), frame(3, 0, large[maxData:2*maxData]), frame(3, 0, large[2*maxData:3*maxData]),
		frame(3, fin, large[3*maxData:]),
		frame(1, fin, nil), frame(control|4, 0, large[:maxControl]), frame(5, 0, large[:maxData]),
	}, nil)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
		"with the end": iotest.DataErrReader,
	} {
		got, err := io.ReadAll(&frames{Conn: readConn{Reader: wrap(bytes.NewReader(sent))}})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, %d bytes, want %d", name, err, len(got), len(want))
		}
	}
}

func TestFramesThatEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		sent []byte
		want string
	}{
		"a stream":                 {frame(control|synStream, 0, make([]byte, 10)), errOpensStreams.Error()},
		"many settings":            {frame(control|4, 0, make([]byte, maxControl+1)), "a SPDY frame of type 4 with 65537 bytes"},
		"half of a header":         {make([]byte, frameHead/2), io.ErrUnexpectedEOF.Error()},
		"the announcement of data": {frame(1, 0, make([]byte, 1<<20))[:frameHead+1], ""},
	} {
		_, err := io.ReadAll(&frames{Conn: readConn{Reader: bytes.NewReader(c.sent)}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if c.want == errOpensStreams.Error() && !errors.Is(err, errOpensStreams) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
