package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
)

// The environment variables about the secret key.
const (
	secretKeyVariable = "KEELSON_SIGNING_KEY"          // the path of the file with the secret key
	passwordVariable  = "KEELSON_SIGNING_KEY_PASSWORD" // its password; empty for a key without one
)

// signatureSuffix is what the name of a signature has after that of its file, as for the program minisign.
const signatureSuffix = ".minisig"

// runKeygen writes a new pair of keys. The secret key is encrypted with the password of the environment; without one it is
// not encrypted, and only good for tests.
func runKeygen(_ io.Writer, args []string) error {
	public, secret, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	text, err := secret.MarshalText()
	if err != nil {
		return err
	}
	if password := os.Getenv(passwordVariable); password != "" {
		if text, err = minisign.EncryptKey(password, secret); err != nil {
			return err
		}
	}
	publicText, err := public.MarshalText()
	if err != nil {
		return err
	}
	if err := createNew(args[0], text, 0o600); err != nil {
		return err
	}
	return createNew(args[1], append(publicText, '\n'), 0o644)
}

// createNew writes a file that must not exist yet.
func createNew(name string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// runSign writes the signature of a file beside it. Without a secret key it says that the file is not signed, and succeeds:
// anyone may build a release, but only the maintainers can sign it.
func runSign(out io.Writer, args []string) error {
	file := args[0]
	keyFile := os.Getenv(secretKeyVariable)
	if keyFile == "" {
		_, err := fmt.Fprintf(out, "%s is not signed: %s names no secret key\n", file, secretKeyVariable)
		return err
	}
	at, err := releaseTime()
	if err != nil {
		return err
	}
	secret, err := readSecretKey(keyFile)
	if err != nil {
		return fmt.Errorf("the secret key %s: %w", keyFile, err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	trusted := fmt.Sprintf("timestamp:%d\tfile:%s", at.Unix(), filepath.Base(file))
	signature := minisign.SignWithComments(secret, content, trusted, "signature of a release of Keelson")
	if err := os.WriteFile(file+signatureSuffix, signature, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, file+signatureSuffix)
	return err
}

// readSecretKey reads a secret key of minisign, with or without a password.
func readSecretKey(file string) (key minisign.PrivateKey, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return key, err
	}
	if minisign.IsEncrypted(content) {
		password := os.Getenv(passwordVariable)
		if password == "" {
			return key, fmt.Errorf("it needs the password of %s", passwordVariable)
		}
		return minisign.DecryptKey(password, content)
	}
	return key, key.UnmarshalText(content)
}

// runVerify checks the signature of a file. The public key is a file, or the key itself.
func runVerify(out io.Writer, args []string) error {
	file, key := args[0], args[1]
	if content, err := os.ReadFile(key); err == nil {
		key = strings.TrimSpace(string(content))
	}
	var public minisign.PublicKey
	if err := public.UnmarshalText([]byte(key)); err != nil {
		return fmt.Errorf("the public key: %w", err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	signature, err := os.ReadFile(file + signatureSuffix)
	if err != nil {
		return err
	}
	if !minisign.Verify(public, content, signature) {
		return errors.New(file + ": the signature is not one of this file by this key")
	}
	_, err = fmt.Fprintf(out, "%s: the signature is valid\n", file)
	return err
}
