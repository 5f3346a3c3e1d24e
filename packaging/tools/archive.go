package main

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// runArchive writes a directory to an archive, whose format is that of the file's name. The paths in a .tar.gz and a .zip
// begin with the name of the directory; those in a .tar, which is for image layouts, do not.
func runArchive(_ io.Writer, args []string) error {
	at, err := releaseTime()
	if err != nil {
		return err
	}
	dir, file := args[0], args[1]
	return writeFile(file, func(w io.Writer) error {
		switch {
		case strings.HasSuffix(file, ".tar.gz"):
			z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
			if err != nil {
				return err
			}
			if err := writeTar(z, dir, filepath.Base(dir), at); err != nil {
				return err
			}
			return z.Close()
		case strings.HasSuffix(file, ".tar"):
			return writeTar(w, dir, "", at)
		case strings.HasSuffix(file, ".zip"):
			return writeZip(w, dir, filepath.Base(dir), at)
		}
		return fmt.Errorf("%s: the name must end with .tar.gz, .tar or .zip", file)
	})
}

// writeFile creates a file with what write writes. It leaves no file if that fails.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = write(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Remove(name)
	}
	return err
}

// entry is a file or directory that goes into an archive.
type entry struct {
	path    string // on disk
	name    string // in the archive; that of a directory ends with a slash
	mode    fs.FileMode
	size    int64
	content bool
}

// entries returns the files and directories of dir in the order of their names. Their modes are 0755 for directories and
// programs and 0644 for other files, whatever the umask was.
func entries(dir, prefix string) ([]entry, error) {
	var out []entry
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		name := path.Join(prefix, filepath.ToSlash(rel))
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case d.IsDir():
			out = append(out, entry{path: p, name: name + "/", mode: 0o755})
		case info.Mode().IsRegular():
			mode := fs.FileMode(0o644)
			if info.Mode()&0o100 != 0 {
				mode = 0o755
			}
			out = append(out, entry{path: p, name: name, mode: mode, size: info.Size(), content: true})
		default:
			return fmt.Errorf("%s is neither a file nor a directory", p)
		}
		return nil
	})
	return out, err
}

// writeTar writes dir as a tar archive. All files belong to user and group 0.
func writeTar(w io.Writer, dir, prefix string, at time.Time) error {
	all, err := entries(dir, prefix)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	for _, e := range all {
		h := &tar.Header{Name: e.name, Mode: int64(e.mode), Size: e.size, ModTime: at, Typeflag: tar.TypeDir, Format: tar.FormatPAX}
		if e.content {
			h.Typeflag = tar.TypeReg
		}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if err := copyEntry(archive, e); err != nil {
			return err
		}
	}
	return archive.Close()
}

// writeZip writes dir as a zip archive.
func writeZip(w io.Writer, dir, prefix string, at time.Time) error {
	all, err := entries(dir, prefix)
	if err != nil {
		return err
	}
	archive := zip.NewWriter(w)
	archive.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	for _, e := range all {
		h := &zip.FileHeader{Name: e.name, Modified: at, Method: zip.Deflate}
		h.SetMode(e.mode)
		if !e.content {
			h.SetMode(e.mode | fs.ModeDir)
			h.Method = zip.Store
		}
		to, err := archive.CreateHeader(h)
		if err != nil {
			return err
		}
		if err := copyEntry(to, e); err != nil {
			return err
		}
	}
	return archive.Close()
}

// copyEntry writes the content of a file to w, and nothing for a directory.
func copyEntry(w io.Writer, e entry) error {
	if !e.content {
		return nil
	}
	f, err := os.Open(e.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(w, f)
	return err
}
