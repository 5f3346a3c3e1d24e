package backup

import (
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
)

// encryptedHead is the first line of a file that is encrypted with age.
const encryptedHead = "age-encryption.org/v1\n"

// ErrEncrypted is the error of OpenFile if the snapshot is encrypted and there are no identities.
var ErrEncrypted = errors.New("the snapshot is encrypted")

// File is an open snapshot file. Reading it returns the decrypted snapshot.
type File struct {
	*io.SectionReader
	file *os.File
}

// OpenFile opens a snapshot file. identities are the private keys that an encrypted snapshot may need. The caller closes the
// file.
func OpenFile(path string, identities []age.Identity) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := decrypted(f, identities)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{s, f}, nil
}

// decrypted returns the content of a file. It decrypts an encrypted file.
func decrypted(f *os.File, identities []age.Identity) (*io.SectionReader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, len(encryptedHead))
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(head) != encryptedHead {
		return io.NewSectionReader(f, 0, info.Size()), nil
	}
	if len(identities) == 0 {
		return nil, ErrEncrypted
	}
	content, size, err := age.DecryptReaderAt(f, info.Size(), identities...)
	if err != nil {
		return nil, fmt.Errorf("the snapshot cannot be decrypted: %w", err)
	}
	return io.NewSectionReader(content, 0, size), nil
}

// Name returns the path with which the file was opened.
func (f *File) Name() string { return f.file.Name() }

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
