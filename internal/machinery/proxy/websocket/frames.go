package websocket

import (
	"errors"
	"fmt"
	"io"
	"net"
)

const (
	// maxData is the size of the largest data frame that the library gets, in bytes. The library keeps up to 50
	// frames of each of several streams, and a kubelet may send frames of 16 MiB.
	maxData = 32 << 10
	// maxControl is the size of the largest control frame that a kubelet may send, in bytes.
	maxControl = 64 << 10

	frameHead  = 8      // bytes of the header of a frame
	synStream  = 1      // the type of the control frame that opens a stream
	controlBit = 1 << 7 // in the first byte of a control frame
)

// errOpensStreams is the error for kubelets that open streams. Only clients may open streams.
var errOpensStreams = errors.New("the kubelet has opened a SPDY stream")

// frames is a SPDY connection to a kubelet. Reading returns the frames of the kubelet, but with large data frames
// split into several. Large control frames, and streams that the kubelet opens, end the connection.
type frames struct {
	net.Conn

	head [frameHead]byte // the header of the frame, with the length and flags of the piece that is read now
	next []byte          // the unread part of head
	data int             // the number of unread bytes of the piece
	rest int             // the number of bytes of the frame after the piece
	last byte            // the flags of the last piece
}

// Read implements io.Reader.
func (f *frames) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if len(f.next) == 0 && f.data == 0 {
		if err := f.begin(); err != nil {
			return 0, err
		}
	}
	if len(f.next) > 0 {
		n := copy(b, f.next)
		f.next = f.next[n:]
		return n, nil
	}
	n, err := f.Conn.Read(b[:min(len(b), f.data)])
	f.data -= n
	return n, err
}

// begin begins the next piece, of this frame or of the next one.
func (f *frames) begin() error {
	if f.rest > 0 {
		f.piece()
		return nil
	}
	if _, err := io.ReadFull(f.Conn, f.head[:]); err != nil {
		return err
	}
	length := int(f.head[5])<<16 | int(f.head[6])<<8 | int(f.head[7])
	if f.head[0]&controlBit == 0 {
		f.rest, f.last = length, f.head[4]
		f.piece()
		return nil
	}
	switch kind := int(f.head[2])<<8 | int(f.head[3]); {
	case kind == synStream:
		return errOpensStreams
	case length > maxControl:
		return fmt.Errorf("the kubelet has sent a SPDY frame of type %d with %d bytes, more than %d", kind, length, maxControl)
	}
	f.data, f.next = length, f.head[:]
	return nil
}

// piece begins the next piece of a data frame.
func (f *frames) piece() {
	f.data = min(f.rest, maxData)
	f.rest -= f.data
	f.head[4] = 0
	if f.rest == 0 {
		f.head[4] = f.last
	}
	f.head[5], f.head[6], f.head[7] = byte(f.data>>16), byte(f.data>>8), byte(f.data) //nolint:gosec // three bytes of a length
	f.next = f.head[:]
}
