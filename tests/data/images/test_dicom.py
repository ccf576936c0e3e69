import collections
import io
import struct
import tracemalloc

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    JPEGBaseline8Bit,
    SecondaryCaptureImageStorage,
    generate_uid,
)

from wardround.data.images.codec import Unreadable, read_image
from wardround.data.sources.images import images


def write_dicom(path, values, **tags):
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = SecondaryCaptureImageStorage, generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    made.SOPClassUID, made.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    made.Rows, made.Columns = values.shape
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = 16, 12, 11, 0
    made.PixelData = values.astype("<u2").tobytes()
    for name, value in tags.items():
        setattr(made, name, value)
    made.save_as(path, enforce_file_format=True)
    return path


VALUES = np.array([[0, 1000], [1100, 2000]])


def test_rescale_and_window_by_hand(tmp_path):
    # Hounsfield units: value - 1024. Window center 50, width 101: from 50 - 0.5 - 50 = -0.5 to 99.5.
    # 0 -> -1024 -> black; 1000 -> -24 -> black; 1100 -> 76 -> 255 * 76.5 / 100 = 195.075; 2000 -> 976 -> white.
    path = write_dicom(
        tmp_path / "a.dcm", VALUES, RescaleIntercept="-1024", RescaleSlope="1", WindowCenter="50", WindowWidth="101"
    )
    assert read_image(path).pixels[..., 0].tolist() == [[0, 0], [195, 255]]
    # The study's window goes before the header's: -1024 to 976 is the whole range, 76 is 255 * 1100 / 2000 = 140.25.
    assert read_image(path, (-1024, 976)).pixels[..., 0].tolist() == [[0, 128], [140, 255]]


def test_without_a_window_from_the_darkest_to_the_brightest_and_inverted_where_it_says_so(tmp_path):
    plain = read_image(write_dicom(tmp_path / "a.dcm", VALUES))
    assert plain.pixels[..., 0].tolist() == [[0, 128], [140, 255]]
    assert plain.deep
    inverted = read_image(write_dicom(tmp_path / "b.dcm", VALUES, PhotometricInterpretation="MONOCHROME1"))
    assert inverted.pixels[..., 0].tolist() == [[255, 127], [115, 0]]


def rewritten(path, **tags):
    """The file with other tags; values that are bytes or a list of numbers are written as 16-bit words."""
    whole = pydicom.dcmread(path)
    for name, value in tags.items():
        if isinstance(value, list | bytes) and name != "PixelData":
            whole.add_new(pydicom.datadict.tag_for_keyword(name), "US" if isinstance(value, list) else "OW", value)
        else:
            setattr(whole, name, value)
    whole.save_as(path)
    return path


EIGHT_BITS = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}


def test_values_of_a_palette_are_the_colours_that_they_stand_for(tmp_path):
    """As ultrasound machines write: 0 is black, 1 red, 2 green, 3 grey; as grey values they would be nonsense."""
    tables = {"Red": [0, 65535, 0, 30000], "Green": [0, 0, 65535, 30000], "Blue": [0, 0, 0, 30000]}
    words = {f"{name}PaletteColorLookupTableDescriptor": [4, 0, 16] for name in tables}
    words |= {f"{name}PaletteColorLookupTableData": np.array(one, "<u2").tobytes() for name, one in tables.items()}
    path = write_dicom(tmp_path / "a.dcm", np.array([[0, 1], [2, 3]]))
    rewritten(path, PhotometricInterpretation="PALETTE COLOR", PixelData=b"\0\1\2\3", **EIGHT_BITS, **words)
    # 30000 / 256 = 117.2.
    assert read_image(path).pixels.tolist() == [[[0, 0, 0], [255, 0, 0]], [[0, 255, 0], [117, 117, 117]]]


def packed_as_jpeg(path, side, said):
    """A file whose header says one size and whose compressed pixels claim another."""
    content = io.BytesIO()
    Image.new("L", (8, 8), 77).save(content, "JPEG")
    frame = b"\xff\xc0\x00\x0b\x08"
    packed = content.getvalue().replace(frame + struct.pack(">HH", 8, 8), frame + struct.pack(">HH", side, side))
    write_dicom(path, np.zeros((2, 2), int), Rows=said, Columns=said)
    whole = pydicom.dcmread(path)
    whole.PixelData = encapsulate([packed])
    whole["PixelData"].is_undefined_length = True
    whole.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    whole.save_as(path)
    return rewritten(path, **EIGHT_BITS)


def test_compressed_pixels_of_another_size_than_the_header_says_are_not_unpacked(tmp_path):
    plain = read_image(packed_as_jpeg(tmp_path / "a.dcm", 8, 8)).pixels
    assert (plain.shape, plain.max()) == ((8, 8, 1), 0)  # one value: the darkest is the brightest
    with pytest.raises(Unreadable, match="its compressed pixels are 3000 x 3000, its header says 4 x 4"):
        read_image(packed_as_jpeg(tmp_path / "b.dcm", 3000, 4))
    path = packed_as_jpeg(tmp_path / "c.dcm", 14_000, 4)
    tracemalloc.start()
    with pytest.raises(Unreadable, match="its compressed pixels are more than 100,000,000"):
        read_image(path)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_headers_tell_when_one_patient_would_be_trained_and_tested_on(tmp_path):
    (tmp_path / "A").mkdir()
    for file, number in enumerate(("K1", "K1", "K2", "K3", "")):
        write_dicom(tmp_path / f"A/{file}.dcm", VALUES, PatientID=number)
    (said,) = [one for one in images(path=tmp_path, target="none", layout="site/frame").notes if "Headers tell" in one]
    assert said.startswith("Headers tell 3 patients for 4 DICOM files, and nothing here says whose each is")
    for subject, file in (("a", 0), ("b", 1), ("c", 2), ("d", 3)):
        (tmp_path / "A" / subject).mkdir()
        (tmp_path / f"A/{file}.dcm").rename(tmp_path / f"A/{subject}/{file}.dcm")
    notes = images(path=tmp_path, target="none", layout="site/subject/frame").notes
    assert any(one.startswith("By their headers 1 patient lies under several names of subject") for one in notes)
    assert not any("K1" in one for one in notes)


def test_names_stay_behind_and_burnt_in_text_is_told(tmp_path):
    (tmp_path / "A").mkdir()
    write_dicom(tmp_path / "A/1.dcm", VALUES, PatientName="Sesay^Aminata", BurnedInAnnotation="YES")
    write_dicom(tmp_path / "A/2.dcm", VALUES, BurnedInAnnotation="NO")
    write_dicom(tmp_path / "A/3.dcm", VALUES)
    table = images(path=tmp_path, target="none", layout="site/frame")
    said = " ".join(table.notes)
    assert "Headers of 1 DICOM file name the patient; nothing but pixels was taken" in said
    assert "Text is burnt into 1 image (A/1)" in said
    assert "1 DICOM file did not say whether text is burnt" in said
    assert "Sesay" not in said
    assert list(table.sites["A"].columns) == ["image"]


def test_several_frames_and_broken_files_are_unreadable(tmp_path):
    with pytest.raises(Unreadable, match="it holds 2 frames"):
        read_image(write_dicom(tmp_path / "a.dcm", VALUES, NumberOfFrames="2"))
    (tmp_path / "b.dcm").write_bytes(b"DICM" * 50)
    with pytest.raises(Unreadable):
        read_image(tmp_path / "b.dcm")
    whole = pydicom.dcmread(write_dicom(tmp_path / "c.dcm", VALUES))
    whole.PixelData = whole.PixelData[:4]
    whole.save_as(tmp_path / "c.dcm")
    with pytest.raises(Unreadable):
        read_image(tmp_path / "c.dcm")


def test_a_file_that_is_packed_as_a_whole_is_not_unpacked(tmp_path):
    """Ten million zeros in ten kilobytes: the header tells of four pixels, and all would be unpacked."""
    whole = pydicom.dcmread(write_dicom(tmp_path / "a.dcm", VALUES))
    whole.add_new(0x00091001, "OB", bytes(10_000_000))
    whole.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    whole.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert (tmp_path / "a.dcm").stat().st_size < 20_000
    with pytest.raises(Unreadable, match="packed as a whole"):
        read_image(tmp_path / "a.dcm")


def grow_file(path, size):
    """A file with so many bytes more, of which nothing is on the disk."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)


def test_an_image_larger_than_memory_is_told_by_its_header(tmp_path, monkeypatch):
    path = write_dicom(tmp_path / "a.dcm", VALUES, Rows=9_000, Columns=9_000)
    grow_file(path, 2 * 9_000 * 9_000)
    free = collections.namedtuple("Memory", "available")(3_000_000_000)
    monkeypatch.setattr("wardround.data.images.codec.psutil.virtual_memory", lambda: free)
    tracemalloc.start()
    # 81 million pixels of 20 bytes are 1.62 GB, more than half of 3 GB.
    with pytest.raises(Unreadable, match=r"9000 x 9000 pixels take 1.6 GB of memory to read, and 3.0 GB are free"):
        read_image(path)
    huge = write_dicom(tmp_path / "b.dcm", VALUES, Rows=60_000, Columns=60_000)
    with pytest.raises(Unreadable, match="more than 100,000,000"):
        read_image(huge)
    png = tmp_path / "c.png"
    Image.new("1", (9_000, 9_000)).save(png)
    with pytest.raises(Unreadable, match=r"take 1\.6 GB"):
        read_image(png)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_a_long_file_around_a_small_image_is_not_read(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", VALUES)
    grow_file(path, 3_000_000_000)
    tracemalloc.start()
    with pytest.raises(Unreadable, match=r"it has 3,000 MB, though its pixels take 0\.0 MB"):
        read_image(path)
    # Neither is a value of the header that is as long.
    whole = pydicom.dcmread(write_dicom(tmp_path / "b.dcm", VALUES))
    whole.add_new(0x00091001, "OB", bytes(30_000_000))
    whole.save_as(tmp_path / "b.dcm")
    del whole
    tracemalloc.reset_peak()
    with pytest.raises(Unreadable, match="it has 30 MB"):
        read_image(tmp_path / "b.dcm")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("tags", "same"),
    [
        ({"RescaleSlope": None, "RescaleIntercept": None}, True),
        ({"WindowCenter": None, "WindowWidth": "10"}, True),
        ({"RescaleSlope": "1e300"}, False),
        ({"BitsStored": None}, False),
    ],
    ids=["no slope", "half a window", "not finite", "no bits"],
)
def test_a_header_that_makes_no_sense_costs_its_file_alone(tmp_path, tags, same):
    path = write_dicom(tmp_path / "a.dcm", VALUES, **tags)
    if same:
        assert read_image(path).pixels[..., 0].tolist() == [[0, 128], [140, 255]]
    else:
        with pytest.raises(Unreadable):
            read_image(path)
