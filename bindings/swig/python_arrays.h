/* python_arrays.h: any array of the caller as a ringattn_tensor, without a copy. Takes the buffer protocol, DLPack
 * (numpy cannot pass bfloat16 or a writable torch tensor of every version, so the capsule is read here) and numpy
 * arrays of ml_dtypes' bfloat16. All of it is in the stable ABI of Python 3.11. */
#ifndef RINGATTN_PYTHON_ARRAYS_H
#define RINGATTN_PYTHON_ARRAYS_H
#include <Python.h>
#include <ringattn.h>
#include <string.h>

/* The part of the DLPack ABI (version 1) that a consumer on the CPU reads. */
typedef struct ra_dl_tensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} ra_dl_tensor;
typedef struct ra_dl_managed_versioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(struct ra_dl_managed_versioned*);
  uint64_t flags; /* bit 0: read-only */
  ra_dl_tensor tensor;
} ra_dl_managed_versioned;
enum { RA_DL_CPU = 1, RA_DL_CUDA = 2, RA_DL_CUDA_HOST = 3, RA_DL_INT = 0, RA_DL_FLOAT = 2, RA_DL_BFLOAT = 4 };

/* A tensor and what keeps its memory alive. */
typedef struct ringattn_view {
  ringattn_tensor tensor;
  Py_buffer buffer;
  PyObject* owner;
} ringattn_view;

/* What is being asked for, for messages and checks. */
typedef struct ra_wish {
  const char* name;  /* of the argument */
  int writable;      /* it is an output */
  const char* axes;  /* of the array, a letter each: b, s, h, d */
  const char* order; /* of the tensor's four axes */
  int32_t as;        /* dtype that 16-bit unsigned integers stand for, or 0 */
} ra_wish;

static int ra_refuse(PyObject* type, const ra_wish* w, const char* format, ...) {
  char text[400];
  va_list list;
  va_start(list, format);
  PyOS_vsnprintf(text, sizeof text, format, list);
  va_end(list);
  PyErr_Format(type, "%s %s", w->name, text);
  return -1;
}

/* The axes in words, for a message: "batch, seq, head, dim". */
static const char* ra_axes_in_words(const char* axes, char* words, size_t room) {
  words[0] = 0;
  for (; *axes != 0; ++axes) {
    const char* word = *axes == 'b' ? "batch" : *axes == 's' ? "seq" : *axes == 'h' ? "head" : "dim";
    PyOS_snprintf(words + strlen(words), room - strlen(words), "%s%s", words[0] ? ", " : "", word);
  }
  return words;
}

/* Puts the array's axes where the tensor has them; an axis that the array lacks has size 1. */
static int ra_place_axes(ringattn_tensor* t, const ra_wish* w, int ndim, const int64_t* shape,
                         const int64_t* stride) {
  char words[64];
  if (ndim != (int)strlen(w->axes))
    return ra_refuse(PyExc_ValueError, w, "has %d axes; expected %d: %s", ndim, (int)strlen(w->axes),
                     ra_axes_in_words(w->axes, words, sizeof words));
  for (int i = 0; i < 4; ++i) t->shape[i] = t->stride[i] = 1;
  for (int i = 0; i < ndim; ++i) {
    const char* place = strchr(w->order, w->axes[i]);
    t->shape[place - w->order] = shape[i];
    t->stride[place - w->order] = stride[i];
  }
  t->flags = RINGATTN_TENSOR_STRIDES;
  return 0;
}

/* The type that a buffer's format tells; 0 = none of ours. 'H' counts where the caller says what it stands for. */
static int32_t ra_format_dtype(const char* format, Py_ssize_t itemsize, int32_t as) {
  const char* f = format == NULL ? "B" : format;
  if (*f == '<' || *f == '=' || *f == '@') ++f;
  if (f[0] == 0 || f[1] != 0) return 0;
  if (*f == 'f' && itemsize == 4) return RINGATTN_DTYPE_F32;
  if (*f == 'e' && itemsize == 2) return RINGATTN_DTYPE_F16;
  if (*f == 'H' && itemsize == 2) return as;
  if ((*f == 'i' || *f == 'l') && itemsize == 4) return RINGATTN_DTYPE_I32;
  if ((*f == 'l' || *f == 'q') && itemsize == 8) return RINGATTN_DTYPE_I64;
  return 0;
}

static int ra_refuse_dtype(const ra_wish* w, const char* what) {
  return ra_refuse(
      PyExc_TypeError, w,
      "has dtype %s; expected float32, float16 or bfloat16 (or int32, int64 where tokens are moved)", what);
}

static int ra_read_buffer(const ra_wish* w, ringattn_view* v) {
  Py_buffer* b = &v->buffer;
  int64_t shape[8], stride[8];
  v->tensor.dtype = ra_format_dtype(b->format, b->itemsize, w->as);
  if (v->tensor.dtype == 0) return ra_refuse_dtype(w, b->format == NULL ? "bytes" : b->format);
  if (w->as != 0 && v->tensor.dtype != w->as)
    return ra_refuse(PyExc_TypeError, w, "is not an array of uint16, so dtype= cannot name its type");
  if (b->ndim > 8) return ra_place_axes(&v->tensor, w, b->ndim, shape, stride);
  for (int i = 0; i < b->ndim; ++i) {
    shape[i] = b->shape[i];
    if (b->strides[i] % b->itemsize != 0 && shape[i] > 1)
      return ra_refuse(PyExc_ValueError, w,
                       "has a stride of %lld bytes on axis %d; expected a multiple of its item size %lld",
                       (long long)b->strides[i], i, (long long)b->itemsize);
    stride[i] = b->strides[i] / b->itemsize;
  }
  v->tensor.data = b->buf;
  return ra_place_axes(&v->tensor, w, b->ndim, shape, stride);
}

static int32_t ra_dlpack_dtype(const ra_dl_tensor* t) {
  if (t->lanes != 1) return 0;
  if (t->code == RA_DL_FLOAT)
    return t->bits == 32 ? RINGATTN_DTYPE_F32 : t->bits == 16 ? RINGATTN_DTYPE_F16 : 0;
  if (t->code == RA_DL_BFLOAT && t->bits == 16) return RINGATTN_DTYPE_BF16;
  if (t->code == RA_DL_INT)
    return t->bits == 32 ? RINGATTN_DTYPE_I32 : t->bits == 64 ? RINGATTN_DTYPE_I64 : 0;
  return 0;
}

static int ra_read_dlpack(const ra_wish* w, ringattn_view* v, const ra_dl_tensor* t, int read_only) {
  int64_t dense[8], step = 1;
  if (t->device_type != RA_DL_CPU && t->device_type != RA_DL_CUDA_HOST)
    return ra_refuse(PyExc_NotImplementedError, w,
                     "is on a device of DLPack type %d (%s), number %d; expected memory of the CPU",
                     (int)t->device_type, t->device_type == RA_DL_CUDA ? "CUDA" : "not the CPU",
                     (int)t->device_id);
  if (w->writable && read_only)
    return ra_refuse(PyExc_ValueError, w, "is read-only; an output must be writable");
  v->tensor.dtype = ra_dlpack_dtype(t);
  if (v->tensor.dtype == 0) {
    char text[64];
    PyOS_snprintf(text, sizeof text, "of %d bits (DLPack code %d)", t->bits, t->code);
    return ra_refuse_dtype(w, text);
  }
  if (w->as != 0 && v->tensor.dtype != w->as)
    return ra_refuse(PyExc_TypeError, w, "is not an array of uint16, so dtype= cannot name its type");
  for (int i = (t->ndim > 8 ? 8 : t->ndim) - 1; i >= 0; --i) {
    dense[i] = step;
    step *= t->shape[i];
  }
  v->tensor.data = t->data == NULL ? NULL : (char*)t->data + t->byte_offset;
  return ra_place_axes(&v->tensor, w, t->ndim, t->shape, t->strides == NULL ? dense : t->strides);
}

/* The capsule keeps its name, so that its own destructor frees the tensor when the view drops it. */
static int ra_open_dlpack(PyObject* array, const ra_wish* w, ringattn_view* v) {
  PyObject* method = PyObject_GetAttrString(array, "__dlpack__");
  if (method == NULL) return -1;
  PyObject* keywords = Py_BuildValue("{s(ii)}", "max_version", 1, 0);
  PyObject* none = PyTuple_New(0);
  PyObject* capsule = keywords == NULL || none == NULL ? NULL : PyObject_Call(method, none, keywords);
  if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) { /* a producer of before version 1 */
    PyErr_Clear();
    capsule = PyObject_Call(method, none, NULL);
  }
  Py_DECREF(method);
  Py_XDECREF(keywords);
  Py_XDECREF(none);
  if (capsule == NULL) { /* the producer says why (it requires gradients, say), and this names the argument */
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_Format(type, "%s cannot be passed on by DLPack: %S", w->name, value == NULL ? Py_None : value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return -1;
  }
  v->owner = capsule;
  const char* kind = PyCapsule_IsValid(capsule, "dltensor") ? "dltensor" : "dltensor_versioned";
  void* pointer = PyCapsule_GetPointer(capsule, kind);
  if (pointer == NULL) return -1;
  if (strcmp(kind, "dltensor") == 0) return ra_read_dlpack(w, v, (const ra_dl_tensor*)pointer, 0);
  ra_dl_managed_versioned* managed = (ra_dl_managed_versioned*)pointer;
  if (managed->major != 1)
    return ra_refuse(PyExc_BufferError, w, "comes as DLPack version %u; expected 1",
                     (unsigned)managed->major);
  return ra_read_dlpack(w, v, &managed->tensor, (int)(managed->flags & 1));
}

/* ml_dtypes' bfloat16 has neither a buffer nor DLPack: the same memory as uint16 has. */
static PyObject* ra_bfloat16_bits(PyObject* array) {
  PyObject *dtype = PyObject_GetAttrString(array, "dtype"), *name = NULL, *bits = NULL;
  if (dtype != NULL) name = PyObject_GetAttrString(dtype, "name");
  if (name != NULL && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0 &&
      PyObject_HasAttrString(array, "__array_interface__"))
    bits = PyObject_CallMethod(array, "view", "s", "uint16");
  PyErr_Clear();
  Py_XDECREF(dtype);
  Py_XDECREF(name);
  return bits;
}

static int ra_open(PyObject* array, ra_wish* w, ringattn_view* v) {
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (w->writable ? PyBUF_WRITABLE : 0);
  PyObject* bits = w->as == 0 ? ra_bfloat16_bits(array) : NULL;
  if (bits != NULL) {
    w->as = RINGATTN_DTYPE_BF16;
    int status = ra_open(bits, w, v);
    Py_DECREF(bits);
    return status;
  }
  int dlpack = PyObject_HasAttrString(array, "__dlpack__");
  if (PyObject_CheckBuffer(array)) {
    if (PyObject_GetBuffer(array, &v->buffer, flags) == 0) return ra_read_buffer(w, v);
    /* An output whose buffer refused to be written (jax) must not be written through its capsule. */
    if (w->writable) {
      PyErr_Clear();
      return ra_refuse(PyExc_ValueError, w, "is read-only; an output must be writable");
    }
    if (!dlpack) return -1;
    PyErr_Clear();
  }
  if (dlpack) return ra_open_dlpack(array, w, v);
  PyErr_Format(PyExc_TypeError, "%s is a %R; expected an array with the buffer protocol or DLPack", w->name,
               (PyObject*)Py_TYPE(array));
  return -1;
}

static void ra_view_free(ringattn_view* v) {
  if (v == NULL) return;
  if (v->buffer.obj != NULL) PyBuffer_Release(&v->buffer);
  Py_XDECREF(v->owner);
  PyMem_Free(v);
}

/* NULL with a Python exception when the array cannot be taken. */
static ringattn_view* ra_view_new(PyObject* array, const char* name, int writable, const char* axes,
                                  const char* order, int32_t as) {
  ra_wish wish = {name, writable, axes, order, as};
  ringattn_view* v = (ringattn_view*)PyMem_Malloc(sizeof *v);
  if (v == NULL) return (ringattn_view*)PyErr_NoMemory();
  memset(v, 0, sizeof *v);
  v->tensor.struct_size = sizeof v->tensor;
  if (ra_open(array, &wish, v) != 0) {
    ra_view_free(v);
    return NULL;
  }
  return v;
}
#endif
