package fleet

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"slices"
)

// Seal seals all keys of s: see [Seal].
func (s *Snapshot) Seal(secret []byte) {
	s.Keys, s.Blocks = slices.Clone(s.Keys), slices.Clone(s.Blocks)
	for i := range s.Keys {
		k := &s.Keys[i]
		k.Name, k.Sealed = "", Seal(secret, string(k.Name))
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.Name, b.Sealed = "", Seal(secret, string(b.Name))
	}
}

// open opens the sealed keys. Those that were sealed with another secret are left out.
func (s *Snapshot) open(secret []byte) {
	opened := func(name *Text, sealed *[]byte) bool {
		if len(*sealed) > 0 {
			key, _ := Open(secret, *sealed) // "" after an error
			*name, *sealed = Text(key), nil
		}
		return *name != ""
	}
	keys, blocks := s.Keys[:0], s.Blocks[:0]
	for _, k := range s.Keys {
		if opened(&k.Name, &k.Sealed) {
			keys = append(keys, k)
		}
	}
	for _, b := range s.Blocks {
		if opened(&b.Name, &b.Sealed) {
			blocks = append(blocks, b)
		}
	}
	s.LeftOut.Keys += len(s.Keys) - len(keys)
	s.LeftOut.Blocks += len(s.Blocks) - len(blocks)
	s.Keys, s.Blocks = keys, blocks
}

// Seal encrypts a key, so that all replicas with the same secret can look it up, and nobody else can read it in the Store.
// The same key is sealed to the same bytes, so that its counts can be added: see RFC 5297 for such a nonce.
func Seal(secret []byte, key string) []byte {
	aead := sealer(secret)
	nonce := derive(secret, "nonce of "+key)[:aead.NonceSize()]
	return aead.Seal(nonce, nonce, []byte(key), nil)
}

// Open returns the key that was sealed.
func Open(secret, sealed []byte) (string, error) {
	aead := sealer(secret)
	if len(sealed) < aead.NonceSize() {
		return "", errors.New("fleet: a sealed key is too short")
	}
	key, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], nil)
	return string(key), err
}

func sealer(secret []byte) cipher.AEAD {
	block, err := aes.NewCipher(derive(secret, "key"))
	if err != nil {
		panic(err) // derive returns 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func derive(secret []byte, use string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("ratelimit replicas: " + use))
	return mac.Sum(nil)
}
