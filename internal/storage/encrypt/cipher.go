package encrypt

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"

	"golang.org/x/crypto/nacl/secretbox"
)

var errTooShort = errors.New("the stored data was shorter than the required size")

// cbc is AES-CBC with PKCS #7 padding. A stored value is the initialization vector and then the ciphertext. cbc
// authenticates neither the value nor its key in the store.
type cbc struct{ block cipher.Block }

var (
	errNotBlocks = errors.New("the stored data is not a multiple of the block size")
	errPadding   = errors.New("invalid padding on input")
)

func newCBC(key []byte) (Transformer, error) {
	block, err := aes.NewCipher(key)
	return cbc{block}, err
}

func (c cbc) ToStore(_ context.Context, _, plain []byte) ([]byte, error) {
	const size = aes.BlockSize
	padding := size - len(plain)%size
	out := make([]byte, size+len(plain)+padding)
	if _, err := rand.Read(out[:size]); err != nil {
		return nil, err
	}
	body := out[size:]
	copy(body, plain)
	for i := len(plain); i < len(body); i++ {
		body[i] = byte(padding)
	}
	cipher.NewCBCEncrypter(c.block, out[:size]).CryptBlocks(body, body)
	return out, nil
}

func (c cbc) FromStore(_ context.Context, _, value []byte) ([]byte, bool, error) {
	const size = aes.BlockSize
	if len(value) < size {
		return nil, false, errTooShort
	}
	iv, body := value[:size], value[size:]
	if len(body)%size != 0 {
		return nil, false, errNotBlocks
	}
	if len(body) == 0 {
		return nil, false, errPadding
	}
	plain := make([]byte, len(body))
	cipher.NewCBCDecrypter(c.block, iv).CryptBlocks(plain, body)
	padding := int(plain[len(plain)-1])
	if padding == 0 || padding > size {
		return nil, false, errPadding
	}
	for _, b := range plain[len(plain)-padding:] {
		if int(b) != padding {
			return nil, false, errPadding
		}
	}
	return plain[:len(plain)-padding], false, nil
}

// gcm is AES-GCM. A stored value is the nonce and then the ciphertext.
type gcm struct{ aead cipher.AEAD }

func newGCM(key []byte) (Transformer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return gcm{aead}, err
}

func (g gcm) ToStore(_ context.Context, authenticated, plain []byte) ([]byte, error) {
	size := g.aead.NonceSize()
	out := make([]byte, size, size+len(plain)+g.aead.Overhead())
	if _, err := rand.Read(out); err != nil {
		return nil, err
	}
	return g.aead.Seal(out, out, plain, authenticated), nil
}

func (g gcm) FromStore(_ context.Context, authenticated, value []byte) ([]byte, bool, error) {
	size := g.aead.NonceSize()
	if len(value) < size {
		return nil, false, errTooShort
	}
	plain, err := g.aead.Open(nil, value[:size], value[size:], authenticated)
	return plain, false, err
}

// secretboxTransformer is NaCl's secretbox (XSalsa20 and Poly1305). A stored value is the nonce and then the
// ciphertext. The value is authenticated, but not its key in the store.
type secretboxTransformer struct{ key *[32]byte }

const secretboxNonceSize = 24

var errSecretbox = errors.New("output from secretbox cannot be opened: wrong key or damaged value")

func newSecretbox(key []byte) (Transformer, error) {
	if len(key) != 32 {
		return nil, errors.New("secretbox needs a key of 32 bytes")
	}
	return secretboxTransformer{(*[32]byte)(key)}, nil
}

func (t secretboxTransformer) ToStore(_ context.Context, _, plain []byte) ([]byte, error) {
	var nonce [secretboxNonceSize]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, err
	}
	out := make([]byte, secretboxNonceSize, secretboxNonceSize+secretbox.Overhead+len(plain))
	copy(out, nonce[:])
	return secretbox.Seal(out, plain, &nonce, t.key), nil
}

func (t secretboxTransformer) FromStore(_ context.Context, _, value []byte) ([]byte, bool, error) {
	if len(value) < secretboxNonceSize+secretbox.Overhead {
		return nil, false, errTooShort
	}
	plain, ok := secretbox.Open(nil, value[secretboxNonceSize:], (*[secretboxNonceSize]byte)(value), t.key)
	if !ok {
		return nil, false, errSecretbox
	}
	return plain, false, nil
}
